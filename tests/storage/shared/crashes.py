"""Work that is killed at each of its steps, one after the other, and then done again."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.storage.shared.shared_logs import SharedLogs


class Crash(BaseException):
    """The process is gone. Not an Exception, so that no code under test can go on."""


class _Steps:
    def __init__(self, crash_at: int | None) -> None:
        self.count = 0
        self._crash_at = crash_at

    def step(self, name: str) -> None:
        self.count += 1
        if self.count == self._crash_at:
            raise Crash(name)


async def contents(logs: SharedLogs) -> dict[int, Any]:
    """All that is readable of every log."""
    found = await logs.connection.execute(
        "SELECT log.id FROM log JOIN topic ON topic.id = log.topic WHERE deleted_at IS NULL ORDER BY 1"
    )
    return {row[0]: await logs.read(row[0]) for row in await found.fetchall()}


async def at_every_step(
    logs: SharedLogs,
    prepare: Callable[[], Awaitable[None]],
    work: Callable[[], Awaitable[None]],
    seen: Callable[[SharedLogs], Awaitable[dict[int, Any]]] = contents,
) -> int:
    """After a crash at any step all logs read the same, and again after the work was repeated.

    `seen` is what must stay the same. Returns the number of steps.
    """
    number = 0
    while True:
        number += 1
        await prepare()
        before = await seen(logs)
        steps = _Steps(number)
        logs.step = logs.objects.step = steps.step
        try:
            await work()
            is_done = True
        except Crash:
            is_done = False
        logs.step = logs.objects.step = lambda name: None
        assert await seen(logs) == before
        await logs.check()
        await logs.take_lease()
        await work()
        assert await seen(logs) == before
        await logs.check()
        if is_done:
            return number - 1
