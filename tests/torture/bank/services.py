"""The bank's programs as processes, to be killed and started again.

They are forked from a server that has imported everything, as brokers are, so that hundreds of rounds spend
their time on work and not on imports.
"""

import ctypes
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture import brokers

_PR_SET_PDEATHSIG = 1
_LOG_FORMAT = "%(levelname)s %(asctime)s %(name)s %(message)s"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([brokers.__name__, "tests.torture.bank.programs"])


@dataclass(slots=True)
class Service:
    """One program, over all its lives."""

    name: str
    program: Callable[..., None]
    arguments: tuple[Any, ...]
    log: Path
    _process: "multiprocessing.process.BaseProcess | None" = field(default=None, init=False)

    def start(self) -> None:
        self._process = _processes.Process(
            target=_live, args=(self.log, self.program, self.arguments), daemon=True
        )
        self._process.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exitcode


def _live(log: Path, program: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with log.open("ab") as file:  # librdkafka writes to the standard error
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT, force=True)
    program(*arguments)
