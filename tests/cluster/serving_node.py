"""A node as a process.

`python -m tests.cluster.serving_node URL NAME [usual-times]`
"""

import sys

from posthouse.cli.serve import run
from posthouse.loaded_settings import LoadedSettings
from posthouse.model.clock import SystemClock
from posthouse.node import Node
from posthouse.shared_storage import SharedStorages
from posthouse.storage.shared.membership.lease import LeaseTimes
from tests.cluster.nodes import TIMES, node_settings


def main() -> None:
    url, name, *how = sys.argv[1:]
    times = LeaseTimes() if how == ["usual-times"] else TIMES
    run(
        LoadedSettings.of_program(node_settings(url, name)),
        hints=False,
        make=lambda settings: Node(settings, SharedStorages(settings.settings, SystemClock()), times=times),
    )


if __name__ == "__main__":
    main()
