"""A broker in a process of its own, and how much memory it takes."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.served import ServedBroker

MIB = 1024 * 1024
ALLOWED_GROWTH = 64 * MIB
UNPUNISHED = {"offender_wait_seconds": 0}
"""Settings for tests of what an attack does each time, which are not to wait for the next."""

_LIMITED = ("/bin/sh", "-c", 'ulimit -n "$0" && exec "$@"')
"""Runs what follows, with as many descriptors as the next word says."""


class Victim(ServedBroker):
    def __init__(self, data: Path, *, descriptors: int | None = None, **settings: Any) -> None:
        """`descriptors`: all that the system lets it have."""
        limited = () if descriptors is None else (*_LIMITED, str(descriptors))
        super().__init__(data, wrapper=limited, stderr=subprocess.DEVNULL, **settings)

    @property
    def kafka_address(self) -> tuple[str, int]:
        return _address(self.bootstrap)

    @property
    def amqp_address(self) -> tuple[str, int]:
        return _address(self.amqp)

    def begin(self) -> int:
        """The memory that it takes now; from now on the peak is counted."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self._status("VmRSS")

    def peak(self) -> int:
        return self._status("VmHWM")

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith(name)]
        return int(line.split()[1]) * 1024


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@contextmanager
def victim(data: Path, *, descriptors: int | None = None, **settings: object) -> Iterator[Victim]:
    process = Victim(data, descriptors=descriptors, **settings)
    try:
        yield process
    finally:
        process.stop()
