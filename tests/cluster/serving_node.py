"""A node as a process, with its records in memory: `python -m tests.cluster.serving_node URL NAME`."""

import sys

from posthouse.cli.serve import run
from posthouse.loaded_settings import LoadedSettings
from posthouse.node import Node
from tests.cluster.nodes import TIMES, MemoryStorages, node_settings


def main() -> None:
    url, name = sys.argv[1:3]
    run(
        LoadedSettings.of_program(node_settings(url, name)),
        hints=False,
        make=lambda settings: Node(settings, MemoryStorages(), times=TIMES),
    )


if __name__ == "__main__":
    main()
