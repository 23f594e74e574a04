"""`posthouse serve` as a process of its own: to be stopped, killed, and started again on the same data."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.processes import Served

START_LIMIT = 120.0
_STOP_LIMIT = 60.0
_COUNTED_ANEW = "5"
"""What the kernel wants to hear to begin a new maximum of the resident memory."""


class Broker:
    """Running from the start on. What it logs goes to a file beside its data."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        source: Path | None = None,
        storage: Sequence[str] | None = None,
    ) -> None:
        """`source` has other sources than those that are installed; `storage` are the options that name
        another storage than a data directory."""
        self._directory = directory
        command = [str(Path(sys.executable).with_name("posthouse")), "serve"]
        command += ["--data", str(directory / "data")] if storage is None else storage
        command += ["--kafka", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--log-level", "warning"]
        # Installed software has its bytecode; a shell that forbids writing it would be measured instead.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        # Not as an option: commits that are compared may be older than it.
        environment["POSTHOUSE_ADMIN"] = "off"
        environment |= {f"POSTHOUSE_{name.upper()}": str(value) for name, value in (settings or {}).items()}
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        begun = time.perf_counter()
        with (directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.seconds_to_ready = time.perf_counter() - begun
        if not line:
            self._process.wait()
            raise RuntimeError(f"the broker did not start: {self.last_words()}")
        listeners = json.loads(line)["listeners"]
        self._served = Served(self._process.pid, str(listeners["kafka"]), self.seconds_to_ready)
        self.kafka = self._served.port
        self.amqp = int(str(listeners["amqp"]).rpartition(":")[2])
        self.admin = str(listeners.get("admin", ""))
        """Where it is scraped; empty unless the setting `admin` was given."""

    @property
    def address(self) -> str:
        return self._served.address

    def cpu_seconds(self) -> float:
        return self._served.cpu_seconds()

    def rss_mib(self) -> float:
        return self._served.rss_mib()

    def forget_peak(self) -> None:
        Path(f"/proc/{self._process.pid}/clear_refs").write_text(_COUNTED_ANEW)

    def peak_mib(self) -> float:
        """The most memory since it started, or since `forget_peak`."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise LookupError("the process has ended")

    def stop(self) -> None:
        """In order: what was asked for is answered, and everything is put away."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(_STOP_LIMIT)
            finally:
                self._process.kill()
                self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join((self._directory / "log").read_text(errors="replace").splitlines()[-5:])


@contextmanager
def scratch() -> Iterator[Path]:
    """Not in /tmp, which may be memory: the working directory is on the disk that is to be measured."""
    parent = Path(".bench")
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="posthouse-scale-", dir=parent) as directory:
        yield Path(directory)


@contextmanager
def serving(directory: Path, settings: Mapping[str, object] | None = None) -> Iterator[Broker]:
    """A broker that is killed in the end: what it would put away is not needed any more."""
    broker = Broker(directory, settings)
    try:
        yield broker
    finally:
        broker.kill()
