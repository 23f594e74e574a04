"""News of logs that other brokers write to: the database is asked, and other brokers give hints.

Every 100 ms one query looks at the logs that readers wait for, or read a moment ago; without such logs
nothing is asked. `refresh` looks at once. A hint comes earlier than a query would; nothing depends on it.

The end of a log never decreases. If the database has a lower one than was known before it was asked, it has
lost commits.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from posthouse.model.errors import StorageFenced, Unavailable
from posthouse.model.ids import PartitionId
from posthouse.storage.arrivals import Arrived, Awaited
from posthouse.storage.log_news import LogNews
from posthouse.storage.producers import Producer
from posthouse.storage.shared.array_text import array_text
from posthouse.storage.shared.database import CommitsLost, DatabaseConnection
from posthouse.storage.shared.joined_calls import JoinedCalls
from posthouse.storage.shared.logs.loading import PRODUCERS, stored_producer
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.time_limit import cut_if_cancelled

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.1
_REST_FACTOR = 4
_LONGEST_REST_SECONDS = 1.0
"""Where thousands of logs are followed, or the database is slow, the follower does not look all the time."""
_RECENT_SECONDS = 5.0
"""How long a log is followed after it was watched."""
_AWAY_SECONDS = 1.0
"""Pause after a failure."""

# Nothing opens or ends a transaction without moving the end of the log.
_CHANGED = """
SELECT l.id, l.start, l.next, l.bytes, l.first_open
  FROM unnest(%s::integer[], %s::bigint[], %s::bigint[]) AS known (id, start, next)
  JOIN log l ON l.id = known.id
 WHERE l.next <> known.next OR l.start <> known.start
"""
_PRODUCERS = f"{PRODUCERS} WHERE log = ANY (%s::integer[])"
_RECORD_LOSS = "SELECT true FROM record_loss(%s, %s)"
_UNKNOWN = -1


class Follower:
    """Owned by the event loop."""

    def __init__(self, readers: Readers, logs: SharedLogs, on_lost: Callable[[StorageFenced], None]) -> None:
        """`readers` are for following alone, so that it waits for no read of records. `on_lost` is told when
        the database is found to have lost commits."""
        self._readers = readers
        self._logs = logs
        self._on_lost = on_lost
        self._confirmed_losses = 0
        """When the logs were loaded."""
        self._loss: str | None = None
        """Once the database is known to have lost commits."""
        self._subscribers: list[Arrived] = []
        self._awaited: list[Awaited] = []
        self._recent: dict[SharedLog, float] = {}
        """When they were last watched."""
        self._wanted: dict[int, SharedLog] = {}
        """To be refreshed, by number."""
        self._refreshes = JoinedCalls(self._refresh_wanted)
        self._task: asyncio.Task[None] | None = None
        self._is_away = False

    def subscribe(self, arrived: Arrived, awaited: Awaited) -> None:
        self._subscribers.append(arrived)
        self._awaited.append(awaited)

    def watch(self, log: SharedLog) -> None:
        """A reader has read from memory, or is at the end of the log: it will ask again soon."""
        self._recent[log] = asyncio.get_running_loop().time()

    def start(self, confirmed_losses: int) -> None:
        """`confirmed_losses` were accepted by operators when the logs were loaded."""
        self._confirmed_losses = confirmed_losses
        self._task = asyncio.get_running_loop().create_task(self._run(), name="shared storage follower")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._refreshes.close()

    async def refresh(self, logs: Sequence[SharedLog]) -> None:
        """Bring the bounds of these logs up to date. Raises Unavailable, and CommitsLost if the database has
        a lower end of one of them."""
        self._wanted |= {each.id: each for each in logs}
        await self._refreshes.call()

    async def refresh_producers(self, logs: Sequence[SharedLog]) -> None:
        """Bring the producers of these logs up to date. Raises Unavailable."""
        found: dict[int, dict[int, Producer]] = {each.id: {} for each in logs}
        for row in await self._ask(_PRODUCERS, [array_text(found)]):
            number, id, producer = stored_producer(row)
            found[number][id] = producer
        for each in logs:
            each.observed_producers = found[each.id]

    def hinted(self, news: Sequence[LogNews]) -> None:
        """What another broker has written."""
        arrived = []
        for number, start, end, stable in news:
            found = self._logs.numbered(number)
            if found is not None and (end > found.end or stable > found.stable or start > found.start):
                records = max(end - found.end, 0)
                # How large they are is not told: as large as those before.
                average = found.size // max(found.end - found.start, 1)
                found.hint(start, end, stable)
                arrived.append((found.partition, records * max(average, 1)))
        self._tell(arrived)

    async def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while self._loss is None:
            await asyncio.sleep(pause)
            pause = _PAUSE_SECONDS
            logs = self._followed()
            began = asyncio.get_running_loop().time()
            try:
                if logs:
                    await self._look(logs)
                    took = asyncio.get_running_loop().time() - began
                    pause += min(_REST_FACTOR * took, _LONGEST_REST_SECONDS)
                    if self._is_away:
                        log.info("the database tells again what other brokers write")
                    self._is_away = False
            except CommitsLost:
                return  # `on_lost` was told
            except Unavailable as error:
                pause = _AWAY_SECONDS
                if not self._is_away:  # one line for an outage, however long it is
                    log.warning("what other brokers write is not known: %s", error)
                self._is_away = True
            except Exception:
                pause = _AWAY_SECONDS
                log.exception("looking for what other brokers write failed")

    def _followed(self) -> dict[int, SharedLog]:
        oldest = asyncio.get_running_loop().time() - _RECENT_SECONDS
        if self._recent:
            self._recent = {each: at for each, at in self._recent.items() if at >= oldest}
        followed = {each.id: each for each in self._recent}
        for awaited in self._awaited:
            for partition in awaited():
                found = self._logs.get(partition)
                if found is not None:
                    followed[found.id] = found
        return followed

    async def _refresh_wanted(self) -> None:
        logs, self._wanted = self._wanted, {}
        await self._look(logs)

    async def _look(self, logs: dict[int, SharedLog]) -> None:
        if self._loss is not None:
            raise CommitsLost(self._loss)
        # What becomes known during the query may be newer than its answer.
        ends_before = {number: each.end for number, each in logs.items()}
        rows = await self._ask(
            _CHANGED,
            [
                array_text(logs),
                array_text(each.start for each in logs.values()),
                array_text(each.end if each.is_current else _UNKNOWN for each in logs.values()),
            ],
        )
        arrived: list[tuple[PartitionId, int]] = []
        for number, start, end, size, first_open in rows:
            found = logs[number]
            if end < ends_before[number]:
                await self._lose(f"{found.name} ends at offset {end}, and ended at {ends_before[number]}")
            before = found.end, found.stable, found.size
            found.observe(start, end, size, first_open)
            if (found.end, found.stable) != before[:2]:
                records = found.end - before[0]
                # A trim hides bytes that were added; a record has at least one.
                arrived.append((found.partition, max(found.size - before[2], records) if records else 0))
        self._tell(arrived)

    async def _lose(self, loss: str) -> NoReturn:
        """Raises CommitsLost; Unavailable if the database cannot record it, and then the next look finds it
        again. It is recorded first: a broker that is fenced loses its scopes, and no other may take them."""
        await self._ask(_RECORD_LOSS, [loss, self._confirmed_losses])
        self._loss = loss
        lost = CommitsLost(loss)
        self._on_lost(lost)
        raise lost

    def _tell(self, arrived: Sequence[tuple[PartitionId, int]]) -> None:
        for each in self._subscribers:
            for partition, size in arrived:
                each(partition, size)

    async def _ask(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        async def ask(connection: DatabaseConnection) -> list[tuple[Any, ...]]:
            found = await connection.cursor(binary=True).execute(statement.encode(), values, prepare=True)
            return await found.fetchall()

        async with self._readers.connection("asking what other brokers wrote") as connection:
            return await cut_if_cancelled(connection, ask(connection))
