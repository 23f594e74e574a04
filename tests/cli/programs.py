"""The program as users run it: another process, with pipes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from posthouse.cli import main

PROGRAM = [sys.executable, "-m", "posthouse.cli.main"]
SECONDS = 60  # a busy machine takes its time


def environment(**more: str) -> dict[str, str]:
    """Ours, without settings of the machine; byte code is kept between runs, as it is for users."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("POSTHOUSE_", "PYTHON"))
    }
    return {
        **kept,
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "posthouse-test-bytecode"),
        "COLUMNS": "200",
        **more,
    }


def posthouse(
    *arguments: str | Path, stdin: str | bytes = b"", bootstrap: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    if bootstrap:
        more["POSTHOUSE_BOOTSTRAP"] = bootstrap
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(**more),
        timeout=SECONDS,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def start(*arguments: str, kafka: str) -> subprocess.Popen[bytes]:
    """Run it with pipes."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(POSTHOUSE_BOOTSTRAP=kafka),
    )


def inside(*arguments: str | Path, bootstrap: str = "", admin: str = "") -> subprocess.CompletedProcess[str]:
    """The same in this process, which is faster where neither pipes nor signals matter."""
    where = ["--bootstrap", bootstrap] if bootstrap else []
    where += ["--admin", admin] if admin else []
    texts = [*where, *map(str, arguments)]
    out = TextIOWrapper(BytesIO(), "utf-8", write_through=True)
    with redirect_stdout(out), redirect_stderr(StringIO()) as err:
        status = main.run(texts)
    out.seek(0)
    return subprocess.CompletedProcess(texts, status, out.read(), err.getvalue())


def one_sentence(done: subprocess.CompletedProcess[str], status: int) -> str:
    """What it said on failing: one line, for people, and nothing on stdout."""
    assert done.returncode == status, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("posthouse: ")
    return line.removeprefix("posthouse: ")


class Serving:
    """`posthouse serve` while the block runs; ended by SIGTERM unless the test ended it."""

    def __init__(self, data: Path | None, *arguments: str, **more: str) -> None:
        place = ["--memory"] if data is None else ["--data", str(data)]
        self._arguments = [
            *PROGRAM,
            "serve",
            *place,
            "--kafka",
            "127.0.0.1:0",
            "--amqp",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            *arguments,
        ]
        self._environment = environment(**more)

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        if not self.ready_line:
            raise AssertionError(self.process.communicate(timeout=SECONDS)[1])
        return self

    @property
    def ready(self) -> dict[str, Any]:
        ready: dict[str, Any] = json.loads(self.ready_line)
        return ready

    @property
    def kafka(self) -> str:
        address: str = self.ready["listeners"]["kafka"]
        return address

    @property
    def admin(self) -> str:
        address: str = self.ready["listeners"]["admin"]
        return address

    @property
    def amqp(self) -> str:
        address: str = self.ready["listeners"]["amqp"]
        return address

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """The exit code and what else it printed on stdout and stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.end()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
