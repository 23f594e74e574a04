"""Work that is killed or loses its scopes at each of its steps, one after the other, and then done again."""

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from tests.storage.shared.shared_logs import SharedLogs


class Crash(BaseException):
    """The process is gone. Not an Exception, so that no code under test can go on."""


class _Steps:
    def __init__(self, number: int, happen: Callable[[str], None]) -> None:
        """At the step with this number something happens."""
        self._left = number
        self._happen = happen

    def step(self, name: str) -> None:
        self._left -= 1
        if self._left == 0:
            self._happen(name)


def _crash(name: str) -> None:
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
        steps = _Steps(number, _crash)
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


_RELEASE = "SELECT release_scope(%s, %s, name) FROM scope WHERE name LIKE 'housekeeping/%%'"
_TAKE = "UPDATE scope SET holder = %s, epoch = epoch + 1 WHERE name LIKE 'housekeeping/%%'"
_PLACES = """
SELECT 'log', id, start, segments_to, 0, 0 FROM log
UNION ALL SELECT 'segment', log, base, last, generation, clean_to FROM segment
UNION ALL SELECT 'object', id, live, 0, 0, 0 FROM object
UNION ALL SELECT 'aborted', log, last, first, 0, 0 FROM aborted
"""


async def without_scopes_at_every_step(
    logs: SharedLogs,
    prepare: Callable[[], Awaitable[None]],
    work: Callable[[], Awaitable[None]],
    seen: Callable[[SharedLogs], Awaitable[dict[int, Any]]] = contents,
) -> int:
    """The scopes of housekeeping are released at any step, and the broker does not know it: nothing that it
    does later counts. All is well after the work was repeated with the scopes. Returns the number of
    steps."""
    number = 0
    while True:
        number += 1
        await prepare()
        before = await seen(logs)
        places: set[tuple[Any, ...]] | None = None

        def release(name: str) -> None:
            nonlocal places
            with psycopg.connect(logs.database._conninfo, autocommit=True) as sql:
                sql.execute(_RELEASE, [logs.lease.incarnation, logs.lease.epoch])
                places = set(sql.execute(_PLACES).fetchall())

        steps = _Steps(number, release)
        logs.step = logs.objects.step = steps.step
        await work()
        logs.step = logs.objects.step = lambda name: None
        assert await seen(logs) == before
        if places is not None:
            assert set(await (await logs.connection.execute(_PLACES)).fetchall()) == places
        await logs.check()
        await logs.connection.execute(_TAKE, [logs.lease.incarnation])
        await work()
        assert await seen(logs) == before
        await logs.check()
        if places is None:
            return number - 1
