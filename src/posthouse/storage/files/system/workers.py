"""Threads for blocking work. Passed in, so that a simulation can run all of it in one thread."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol, TypeAlias

Turn: TypeAlias = Callable[[], bool]
"""Waits for work and does it. False ends the worker."""


class Server(Protocol):
    """One worker that calls its `Turn` until that returns False."""

    def wake(self) -> None:
        """Signal that there is work. Called from the event loop."""

    def join(self) -> None:
        """Return when the last turn is over."""


class Workers(Protocol):
    def pool(self, name: str, size: int) -> Executor:
        """An executor for single tasks."""

    def serve(self, name: str, turn: Turn, is_idle: Callable[[], bool]) -> Server:
        """Start a worker that takes turns. `is_idle` tells whether a turn would have to wait."""


class Threads:
    def pool(self, name: str, size: int) -> Executor:
        return ThreadPoolExecutor(size, thread_name_prefix=name)

    def serve(self, name: str, turn: Turn, is_idle: Callable[[], bool]) -> Server:
        return _Thread(name, turn)


class _Thread:
    def __init__(self, name: str, turn: Turn) -> None:
        self._turn = turn
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._turn():
            pass

    def wake(self) -> None:
        """No-op: the turn waits by itself."""

    def join(self) -> None:
        self._thread.join()
