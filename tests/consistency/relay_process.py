"""A relay with short leases, to be killed: `python -m tests.consistency.relay_process DATABASE TARGET`, which
is the address of a Posthouse, or a URL of another broker."""

import os
import sys
from contextlib import closing

from posthouse.consistency.databases import open_database
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.relaying import Relaying
from posthouse.consistency.target_urls import batch_size_for, open_target


def main(url: str, place: str) -> None:
    with closing(open_target(place) if "://" in place else LogTarget(place)) as target:
        relaying = Relaying(
            lambda: open_database(url),
            target,
            f"{os.getpid()}",
            lease_seconds=1,
            poll_seconds=0.1,
            batch_size=batch_size_for(place),
        )
        relaying.run()


main(*sys.argv[1:])
