"""Who does the work that blocks. Threads; passed in, so that a simulation can do all of it in one."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol, TypeAlias

Turn: TypeAlias = Callable[[], bool]
"""Waits for something to do and does it. False says that it was the last one."""


class Server(Protocol):
    """One worker that takes turns until the last one."""

    def wake(self) -> None:
        """There is something to do. Called whenever there is, from the event loop."""

    def join(self) -> None:
        """Return when the last turn is over."""


class Workers(Protocol):
    def pool(self, name: str, size: int) -> Executor:
        """For work that is handed over piece by piece."""

    def serve(self, name: str, turn: Turn, is_idle: Callable[[], bool]) -> Server:
        """Start a worker that takes turns. `is_idle` says whether a turn would have to wait."""


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
        """Nothing: its turn waits by itself."""

    def join(self) -> None:
        self._thread.join()
