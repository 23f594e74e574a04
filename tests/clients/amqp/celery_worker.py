"""A Celery application in this process, and its workers as processes."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import kombu.pools
import pytest

from tests.clients.amqp.rabbit import Rabbit

SECONDS = 40.0
"""How long a worker may take to start, or to end."""


APPLICATION = "tests.clients.amqp.celery_app"


def settings(rabbit: Rabbit, name: str, **more: str) -> dict[str, str]:
    return {"CELERY_TEST_BROKER": rabbit.url, "CELERY_TEST_NAME": name, **more}


def application(environment: dict[str, str]) -> Any:
    """The same application in this process, anew: it reads its settings when it is imported."""
    spec = importlib.util.find_spec(APPLICATION)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment.items():
            patch.setenv(key, value)
        spec.loader.exec_module(module)
    return module


def close(module: Any) -> None:
    """All connections of the application in this process; its own close() leaves them open."""
    consumer: Any = getattr(module.app.backend, "result_consumer", None)
    if consumer is not None and getattr(consumer, "_connection", None) is not None:
        consumer.stop()
    module.app.pool.force_close_all()
    kombu.pools.reset()
    module.app.close()


class Beat:
    """`with Beat(…)`: the scheduler runs inside."""

    def __init__(self, environment: dict[str, str], files: Path) -> None:
        self._environment = os.environ | environment
        self._files = files

    def __enter__(self) -> Self:
        command = [
            *(sys.executable, "-m", "celery", "-A", APPLICATION, "beat", "--loglevel", "INFO"),
            *("--schedule", f"{self._files}.schedule", "--pidfile", f"{self._files}.pid"),
        ]
        with self._files.with_suffix(".log").open("wb") as output:
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(SECONDS)
        finally:
            self._process.kill()


class Worker:
    """`with Worker(…)`: it is ready inside, and has ended after it."""

    def __init__(self, environment: dict[str, str], log: Path, *options: str) -> None:
        self._environment = os.environ | environment
        self._name = f"{environment['CELERY_TEST_NAME']}-{log.stem}"
        self._log = log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [
            *(sys.executable, "-m", "celery", "-A", APPLICATION, "worker"),
            *("--loglevel", "INFO", "--hostname", f"{self._name}@%h", *self._options),
        ]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + SECONDS
        while " ready." not in self.said():
            if time.monotonic() > until or self._process.poll() is not None:
                self.kill()
                raise AssertionError(f"the worker did not start:\n{self.said()}")
            time.sleep(0.05)
        return self

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Without a word to the broker, and its children with it."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait(SECONDS)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the worker did not end:\n{self.said()}") from None
