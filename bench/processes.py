"""Brokers and copiers as processes of their own, with what they use of the machine."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Served:
    """A process that is ready to be talked to."""

    pid: int
    address: str
    seconds_to_ready: float

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mib(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise LookupError("the process has ended")


@contextmanager
def broker(data: Path | None = None) -> Iterator[Served]:
    """`posthouse serve` on a fresh directory, unless one is given."""
    with tempfile.TemporaryDirectory(prefix="posthouse-bench-", dir=_scratch()) as scratch:
        directory = data or Path(scratch) / "data"
        command = [
            str(Path(sys.executable).with_name("posthouse")),
            *(
                "serve",
                "--data",
                str(directory),
                "--kafka",
                "127.0.0.1:0",
                "--amqp",
                "off",
                "--admin",
                "off",
                "--log-level",
                "warning",
            ),
        ]
        with _serving(command, lambda line: str(json.loads(line)["listeners"]["kafka"])) as served:
            yield served


@contextmanager
def copier() -> Iterator[Served]:
    """The floor: see `bench.copier`."""
    with tempfile.TemporaryDirectory(prefix="posthouse-bench-", dir=_scratch()) as scratch:
        command = [sys.executable, "-m", "bench.copier", str(Path(scratch) / "copy")]
        with _serving(command, lambda line: f"127.0.0.1:{int(line)}") as served:
            yield served


def _scratch() -> str:
    """Not /tmp, which may be memory: the working directory is on the disk that is to be measured."""
    directory = Path(".bench")
    directory.mkdir(exist_ok=True)
    return str(directory)


@contextmanager
def _serving(command: list[str], address: Callable[[str], str]) -> Iterator[Served]:
    # Installed software has its bytecode; a shell that forbids writing it would be measured instead.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{command[0]} did not start")
        yield Served(process.pid, address(line), time.perf_counter() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
