"""A process with RocketMQ's client in Python that does what a test says, see `grpc/python_consumer.py`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_PROGRAM: Final = Path(__file__).parent / "grpc" / "python_consumer.py"


class SteeredConsumer:
    def __init__(self, address: str, home: Path, topic: str, group: str) -> None:
        home.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), address, topic, group],
            env=os.environ | {"HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read() == "ready"

    def read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.read()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self.read() == "ended"
        assert self._process.wait(60) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
