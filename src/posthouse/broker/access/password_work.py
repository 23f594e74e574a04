"""Password checks, slow on purpose, on a thread of their own, round robin over sources.

A password check takes milliseconds of CPU time, and any client can ask for it. Sources (addresses) take
turns: a client that tries thousands of passwords delays its own logins, and others by one check at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from posthouse.model.errors import LoginFailed

_MOST_WAITING = 1024
"""Maximum number of waiting logins, about the number of unauthenticated connections. Further logins fail."""

_Result = TypeVar("_Result")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class PasswordWork:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._lines: dict[str, deque[_Job]] = {}
        """Waiting jobs by source; the first source is next."""
        self._waiting = 0
        self._is_busy = False

    async def do(self, source: str, job: Callable[[], _Result]) -> _Result:
        """Run the job in turn. Raises LoginFailed if too many logins wait."""
        if self._waiting >= _MOST_WAITING:
            raise LoginFailed("too many logins at once; try again")
        done: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(source, deque()).append((job, done))
        self._waiting += 1
        self._go_on()
        try:
            return await done
        finally:
            self._waiting -= 1

    def close(self) -> None:
        for line in self._lines.values():
            for _, done in line:
                done.cancel()
        self._lines.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _go_on(self) -> None:
        while self._lines and not self._is_busy:
            job, done = self._next()
            if done.cancelled():
                continue  # its client has disconnected
            self._is_busy = True
            working = asyncio.get_running_loop().run_in_executor(self._thread, job)
            working.add_done_callback(partial(self._worked, done))

    def _next(self) -> _Job:
        source = next(iter(self._lines))
        line = self._lines.pop(source)
        job = line.popleft()
        if line:
            self._lines[source] = line
        return job

    def _worked(self, done: "asyncio.Future[Any]", worked: "asyncio.Future[Any]") -> None:
        self._is_busy = False
        if worked.cancelled():
            done.cancel()
        elif not done.done():
            error = worked.exception()
            if error is None:
                done.set_result(worked.result())
            else:
                done.set_exception(error)
        self._go_on()
