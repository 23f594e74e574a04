"""Starts RabbitMQ on loopback and runs the tests that must hold of it as well as of Posthouse."""

import os
import subprocess
import sys

from bench.queues.peers import Absent, rabbitmq

TESTS = ("tests/protocols/amqp/as_rabbitmq", "tests/clients/amqp", "tests/consistency/test_relay_to_amqp.py")


def main(arguments: list[str]) -> int:
    try:
        with rabbitmq() as served:
            environment = {**os.environ, "POSTHOUSE_TEST_AMQP": served.address}
            command = [sys.executable, "-m", "pytest", *(arguments or TESTS)]
            return subprocess.run(command, env=environment, check=False).returncode
    except Absent as absent:
        print(f"RabbitMQ cannot be compared with: {absent}. Debian has it as rabbitmq-server.")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
