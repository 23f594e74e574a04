"""Time that the event loop spends on one client."""

import time
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from posthouse.protocols.noop import noop

T = TypeVar("T")


class Stopwatch:
    """Runs while it is entered. Waiting and work on other threads do not count."""

    __slots__ = ("_since", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.thread_time()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds += time.thread_time() - self._since


class Timed(Coroutine[Any, Any, T]):
    """A coroutine whose steps are timed. It needs a task of its own: awaiting it would not time its steps."""

    def __init__(
        self, inner: Coroutine[Any, Any, T], stopwatch: Stopwatch, stepped: Callable[[], object] = noop
    ) -> None:
        """`stepped` is called after each step."""
        self._inner = inner
        self._stopwatch = stopwatch
        self._stepped = stepped

    def send(self, value: Any) -> Any:
        try:
            with self._stopwatch:
                return self._inner.send(value)
        finally:
            self._stepped()

    def throw(self, *error: Any) -> Any:
        try:
            with self._stopwatch:
                return self._inner.throw(*error)
        finally:
            self._stepped()

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        raise TypeError("create a task of it instead of awaiting it")
