"""`python -m tools.conformance.rocketmq.peer NAME JARS CLASS_PATH`: starts a broker and prints its answers.

To be run in a network namespace of its own: the ports are RocketMQ's.
"""

import subprocess
import sys
from pathlib import Path

from bench.rocketmq.peers import ADDRESS, PEERS


def main() -> int:
    name, jars, class_path = sys.argv[1:]
    peer = next(each for each in PEERS if each.name == name)
    with peer.start(Path(jars)):
        command = [
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            f"-Duser.home={jars}",
            "-cp",
            class_path,
            "Answers",
        ]
        return subprocess.run([*command, ADDRESS], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
