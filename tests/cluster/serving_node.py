"""A node as a process, with its records in memory: `python -m tests.cluster.serving_node URL NAME`."""

import sys

from posthouse.cli.serve import run
from posthouse.model.clock import SystemClock
from posthouse.node import Node
from posthouse.storage.memory.engine import MemoryStorage
from tests.cluster.nodes import TIMES, node_settings


def main() -> None:
    url, name = sys.argv[1:3]
    run(
        node_settings(url, name),
        hints=False,
        make=lambda settings: Node(settings, lambda lease: MemoryStorage(SystemClock()), times=TIMES),
    )


if __name__ == "__main__":
    main()
