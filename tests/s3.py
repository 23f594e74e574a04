"""A real S3 server for tests: versitygw, with its objects in a directory of its own.

`make test-cluster` puts it into `build/`; it may also be on the PATH.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.directories import IN_MEMORY
from tests.postgres import LOOPBACK, free_port

ACCESS_KEY = "posthouse"
SECRET_KEY = "posthouse-secret"
BUCKET = "posthouse"
S3_CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

_BUILT = Path(__file__).parent.parent / "build" / "versitygw"
_START_SECONDS = 30


def s3_program() -> Path | None:
    """The server's program, None where it is not installed."""
    found = shutil.which("versitygw", path=f"{_BUILT.parent}{os.pathsep}{os.environ.get('PATH', '')}")
    return None if found is None else Path(found)


def why_no_s3() -> str | None:
    """What is in the way of an S3 server here; None if nothing is."""
    return (
        None if s3_program() is not None else "versitygw is not there: make build/versitygw, which needs Go"
    )


def need_s3() -> Path:
    """The server's program. Skips the test unless it runs with POSTHOUSE_CLUSTER=1."""
    if os.environ.get("POSTHOUSE_CLUSTER") != "1":
        pytest.skip("a real S3 server is used by make test-cluster only (POSTHOUSE_CLUSTER=1)")
    if (reason := why_no_s3()) is not None:
        pytest.skip(reason)
    found = s3_program()
    assert found is not None
    return found


@dataclass(slots=True)
class S3Server:
    """One server process. `kill`, `pause` and `resume` are faults; `start` brings it back with its data."""

    directory: Path
    port: int
    host: str = LOOPBACK
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        program = s3_program()
        assert program is not None, "versitygw is not there"
        buckets, metadata = self.directory / "buckets", self.directory / "metadata"
        (buckets / BUCKET).mkdir(parents=True, exist_ok=True)
        metadata.mkdir(exist_ok=True)
        command: list[str | Path] = [
            *(program, "--port", f"{self.host}:{self.port}", "--keep-alive", "--quiet"),
            *("posix", "--sidecar", metadata, buckets),
        ]
        keys = {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY}
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=os.environ | keys, stdout=log, stderr=log, start_new_session=True
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError((self.directory / "server.log").read_text()[-2000:])
            try:
                socket.create_connection((self.host, self.port), timeout=5).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        return (
            f"s3://{bucket}/{prefix}?endpoint=http://{self.host}:{self.port}&region=us-east-1&path_style=true"
        )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.process.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """A new server with an empty bucket, and its credentials in this process's environment."""
    need_s3()
    with (
        tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-s3-") as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in S3_CREDENTIALS.items():
            patch.setenv(name, value)
        server = S3Server(Path(place), free_port())
        server.start()
        try:
            yield server
        finally:
            if server.process is not None:
                server.kill()
