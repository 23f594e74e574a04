"""`python -m tools.conformance.rocketmq.peer NAME JARS COMMAND…`: starts a broker, and runs the command that
prints its answers.

To be run in a network namespace of its own: the ports are RocketMQ's.
"""

import subprocess
import sys
from pathlib import Path

from bench.rocketmq.peers import PEERS


def main() -> int:
    name, jars, *command = sys.argv[1:]
    peer = next(each for each in PEERS if each.name == name)
    with peer.start(Path(jars)):
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
