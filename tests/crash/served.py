"""A broker as everybody starts it, by its command, to be killed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class BrokerProcess:
    def __init__(self, data: Path, port: int = 0) -> None:
        command = [
            *(sys.executable, "-m", "posthouse", "serve", "--data", str(data)),
            *("--kafka", f"127.0.0.1:{port}", "--amqp", "127.0.0.1:0"),
            *("--journal-bytes", str(256 * 1024), "--log-level", "error"),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker did not start"
        listeners = json.loads(line)["listeners"]
        self.bootstrap: str = listeners["kafka"]
        self.amqp: str = listeners["amqp"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def broker(data: Path, port: int = 0) -> Iterator[BrokerProcess]:
    process = BrokerProcess(data, port)
    try:
        yield process
    finally:
        process.kill()


def forget(data: Path) -> None:
    """What a disk that lies may do while the broker is dead: the journal is gone, and segments are cut."""
    for journal in (data / "journal").glob("*.wal"):
        journal.unlink()
    for segment in (data / "topics").rglob("*.log"):
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
