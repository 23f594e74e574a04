"""`posthouse serve` as a process, and settings for applications that a test puts together, by declared names.

A broker inside the test comes from `posthouse.testing`, which takes settings in the same way. `tests/cli`
writes its command lines by hand, because they are what it tests.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from posthouse.settings import Address, Settings

ANY_PORT = Address("127.0.0.1", 0)
_NAMES = frozenset(field.name for field in fields(Settings))


def on_any_port(**settings: Any) -> Settings:
    """For tests that put an application together by themselves, on a storage or a clock of their own."""
    return Settings(**{"kafka": ANY_PORT, "amqp": ANY_PORT, "admin": ANY_PORT, **settings})


def serve_command(data: Path, settings: Mapping[str, object]) -> list[str]:
    unknown = settings.keys() - _NAMES
    assert not unknown, f"no such setting: {', '.join(unknown)}"
    given = {
        "data": data,
        "kafka": ANY_PORT,
        "amqp": ANY_PORT,
        "admin": ANY_PORT,
        "log_level": "error",
        **settings,
    }
    flags = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return [sys.executable, "-m", "posthouse", "serve", *flags]


class ServedBroker:
    """Ready to be talked to when it is made."""

    def __init__(
        self,
        data: Path,
        *,
        wrapper: Sequence[str] = (),
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        """`wrapper` is a command that runs the one behind it; `environment` is added to that of the test."""
        self.process = subprocess.Popen(
            [*wrapper, *serve_command(data, settings)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the broker did not start"
        self._listeners: dict[str, str] = json.loads(line)["listeners"]

    def address(self, listener: str) -> str:
        return self._listeners[listener]

    @property
    def bootstrap(self) -> str:
        return self._listeners["kafka"]

    @property
    def amqp(self) -> str:
        return self._listeners["amqp"]

    @property
    def admin(self) -> str:
        return self._listeners["admin"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
