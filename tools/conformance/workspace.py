"""Where suites are unpacked and built, and which versions they have.

    .conformance/
      downloads/                  source packages, as the registries gave them
      kafka-python-VERSION/       unpacked, with a virtual environment for it in venv/
      kafka-javascript-VERSION/   unpacked, with librdkafka built in deps/librdkafka
      pika-VERSION/, kombu-VERSION/, py-amqp-VERSION/, amqplib-VERSION/   likewise
      kafka-path/                 our stand-in for the scripts of a Kafka installation
      data-NAME/                  a broker's data; removed after the run unless it is to be kept
      logs/                       what every step and every test printed
      results-SUITE.json          the last run

All of it can be deleted at any time; the next run makes it anew.
"""

import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KAFKA_PYTHON_VERSION = os.environ.get("KAFKA_PYTHON_VERSION", "3.0.12")
KAFKA_JAVASCRIPT_VERSION = os.environ.get("KAFKA_JAVASCRIPT_VERSION", "1.10.1")
"""The npm package @confluentinc/kafka-javascript, which carries librdkafka with its tests."""
KAFKA_CLIENTS_VERSION = os.environ.get("KAFKA_CLIENTS_VERSION", "4.2.0")
"""Kafka's Java client, which a few of librdkafka's tests put on the other side."""
PIKA_VERSION = "1.3.2"
"""Not the newest, but Debian's source package of it has the tests. The Python package index has none."""
KOMBU_VERSION = os.environ.get("KOMBU_VERSION", "5.7.0")
PY_AMQP_VERSION = os.environ.get("PY_AMQP_VERSION", "5.4.2")
AMQPLIB_VERSION = os.environ.get("AMQPLIB_VERSION", "2.2.0")
"""The last npm package of it that has the tests."""


class SetupError(Exception):
    """The suite cannot be run on this machine; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Workspace:
    root: Path
    keep_data: bool = False
    """Whether the data of brokers stays for somebody to look at."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time: two would remove each other's data."""
        self.root.mkdir(exist_ok=True)
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SetupError(f"another run is using {self.root}; let it finish first.") from None
            yield

    @property
    def downloads(self) -> Path:
        return self._directory("downloads")

    @property
    def logs(self) -> Path:
        return self._directory("logs")

    def _directory(self, name: str) -> Path:
        directory = self.root / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def run(
        self,
        step: str,
        command: list[str],
        *,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> str:
        """What the command printed; it is also kept in logs/STEP.log."""
        if "/" not in command[0] and shutil.which(command[0]) is None:
            raise SetupError(f"{step}: there is no {command[0]} on this machine; install it and try again.")
        log = self.logs / f"{step}.log"
        with log.open("w") as output:
            finished = subprocess.run(
                command,
                cwd=cwd,
                env=os.environ | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        text = log.read_text(errors="replace")
        if finished.returncode != 0:
            last = "\n  ".join(text.splitlines()[-8:])
            raise SetupError(f"{step} failed ({' '.join(command)}); all of its output is in {log}:\n  {last}")
        return text


def unpack(archive: Path, into: Path) -> None:
    """The content of a source package, without its single top directory; whole or not at all."""
    partial = into.with_name(into.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(partial, filter="data")
    (top,) = partial.iterdir()
    top.rename(into)
    partial.rmdir()
