"""A broker in a process of its own, and how much memory it takes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1024 * 1024
ALLOWED_GROWTH = 64 * MIB
UNPUNISHED = ("--offender-wait-seconds", "0")
"""Flags for tests of what an attack does each time, which are not to wait for the next."""

# glibc keeps what was freed in as many arenas as there were threads; that is not what is measured here.
_ENVIRONMENT = dict(os.environ)
_LIMITED = ("/bin/sh", "-c", 'ulimit -n "$0" && exec "$@"')
"""Runs what follows, with as many descriptors as the next word says."""


class Victim:
    def __init__(self, data: Path, *flags: str, descriptors: int | None = None) -> None:
        """`descriptors`: all that the system lets it have."""
        limited = () if descriptors is None else (*_LIMITED, str(descriptors))
        command = [
            *limited,
            *(sys.executable, "-m", "posthouse", "serve", "--data", str(data)),
            *("--kafka", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--log-level", "error"),
            *flags,
        ]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_ENVIRONMENT
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker did not start"
        listeners = json.loads(line)["listeners"]
        self.kafka = _address(listeners["kafka"])
        self.amqp = _address(listeners["amqp"])

    def begin(self) -> int:
        """The memory that it takes now; from now on the peak is counted."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")
        return self._status("VmRSS")

    def peak(self) -> int:
        return self._status("VmHWM")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith(name)]
        return int(line.split()[1]) * 1024

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@contextmanager
def victim(data: Path, *flags: str, descriptors: int | None = None) -> Iterator[Victim]:
    process = Victim(data, *flags, descriptors=descriptors)
    try:
        yield process
    finally:
        process.stop()
