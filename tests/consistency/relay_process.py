"""A relay with short leases, to be killed: `python -m tests.consistency.relay_process DATABASE KAFKA`."""

import os
import sys
from contextlib import closing

from posthouse.consistency.databases import open_database
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.relaying import Relaying


def main(url: str, kafka: str) -> None:
    with closing(LogTarget(kafka)) as target:
        relaying = Relaying(
            lambda: open_database(url), target, f"{os.getpid()}", lease_seconds=1, poll_seconds=0.1
        )
        relaying.run()


main(*sys.argv[1:])
