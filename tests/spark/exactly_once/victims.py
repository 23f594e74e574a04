"""The processes that are killed: a broker, a Spark driver, its executors, an archiver."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.crash.served import BrokerProcess

PROGRAM = Path(__file__).with_name("program.py")
MASTER = "local-cluster[2,1,1024]"
PATIENCE = 240.0


class Broker:
    """Comes back on the same port."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process = BrokerProcess(data)
        self.bootstrap = self._process.bootstrap

    def kill(self) -> None:
        self._process.kill()
        self._process = BrokerProcess(self._data, int(self.bootstrap.rpartition(":")[2]))

    def stop(self) -> None:
        self._process.kill()


class Program:
    """A process with its log in a file, started anew when it is killed or has failed."""

    def __init__(self, command: list[str], directory: Path, name: str) -> None:
        self._command = command
        self._directory = directory
        self._log = directory / f"{name}.log"
        self.starts = 0
        self._process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        self.starts += 1
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *self._command],
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=os.environ | {"SPARK_WORKER_DIR": str(self._directory / "work")},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def revive(self) -> bool:
        """Start it again if it has ended; whether it had."""
        if self._process.poll() is None:
            return False
        self._process = self._started()
        return True

    def kill(self) -> None:
        """The process and its JVM, but not the executors: they have to find out by themselves."""
        jvms = [
            pid for pid in descendants(self.pid) if "org.apache.spark.deploy.SparkSubmit" in command_of(pid)
        ]
        for pid in (*jvms, self.pid):
            send_kill(pid)
        self._process.wait()
        self._process = self._started()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def stop(self) -> None:
        for pid in (*descendants(self.pid), self.pid):
            send_kill(pid)
        self._process.wait()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


class Driver(Program):
    def __init__(self, bootstrap: str, directory: Path) -> None:
        super().__init__([str(PROGRAM), MASTER, bootstrap, str(directory)], directory, "driver")

    def _started(self) -> "subprocess.Popen[bytes]":
        (self._directory / "started").unlink(missing_ok=True)
        return super()._started()

    def wait_until_started(self) -> None:
        """A driver that fails on its way is started again, as whatever watches over one does."""
        deadline = time.monotonic() + PATIENCE
        while not (self._directory / "started").exists():
            assert time.monotonic() < deadline, self.tail()
            self.revive()
            time.sleep(0.1)  # a file says nothing when it appears

    def wait_for_epochs(self, count: int) -> None:
        """Return when so many more epochs have been committed by both queries together."""
        deadline = time.monotonic() + PATIENCE
        goal = self._epochs() + count
        while self._epochs() < goal:
            assert time.monotonic() < deadline, self.tail()
            self.revive()
            time.sleep(0.02)  # a directory says nothing when it gets a file

    def _epochs(self) -> int:
        """Spark removes old files, so it is the number in the names that counts."""
        latest: dict[str, int] = {}
        for each in self._directory.glob("checkpoints/*/commits/*"):
            if each.name.isdigit():
                query = each.parent.parent.name
                latest[query] = max(latest.get(query, 0), int(each.name) + 1)
        return sum(latest.values())

    def executors(self) -> list[int]:
        return [pid for pid in descendants(self.pid) if "CoarseGrainedExecutorBackend" in command_of(pid)]

    def python_workers(self) -> list[int]:
        return [pid for pid in descendants(self.pid) if "daemon" in command_of(pid)]


class Archiver(Program):
    def __init__(self, bootstrap: str, directory: Path, topics: Sequence[str]) -> None:
        command = ["-m", "posthouse.cli.main", "archive", "run", *topics, "--bootstrap", bootstrap]
        command += ["--to", str(directory / "archive"), "--master", "local[1]"]
        super().__init__([*command, "--continuous", "--every", "1"], directory, "archiver")
        self._once = command

    def finish(self) -> None:
        """Archive what is left, and end."""
        self.stop()
        done = subprocess.run(
            [sys.executable, *self._once], cwd=self._directory, capture_output=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for process in _processes():
        try:
            parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        children.setdefault(parent, []).append(process)
    found, waiting = [], [pid]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def send_kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
