"""The call of `commit_group`, and what happens when its answer is lost.

If the connection breaks during a call, only the database knows whether the commit counts. So every call has
a number, and the database keeps the last number of each path with its answer. `_resolve` asks for it. A
commit is repeated only after a definite no.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from posthouse.model.clock import Clock
from posthouse.model.errors import StorageFenced, StorageFull, Unavailable
from posthouse.model.scopes import COORDINATOR
from posthouse.storage.remote_metrics import CallMetrics
from posthouse.storage.shared.commits.commit_group import Answer
from posthouse.storage.shared.commits.last_commits import LastCommit
from posthouse.storage.shared.database import (
    COMMITS_LOST,
    LEASE_LOST,
    SCOPE_NEEDED,
    CommitsLost,
    Database,
    DatabaseAway,
    DatabaseConnection,
    LeaseLost,
    ScopeNeeded,
    one_line,
)
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.time_limit import cut, time_limit

log = logging.getLogger(__name__)

_CALL = f"SELECT * FROM commit_group({', '.join(['%s'] * 39)})"
_RESOLVE = "SELECT * FROM resolve_commit(%s, %s, %s)"
_OPEN = "SELECT * FROM open_commit_path(%s, %s, %s, %s, %s, %s)"
_RESERVE = "SELECT * FROM reserve_producer_ids(%s, %s, %s, %s, %s, %s)"
_RECORD_LOSS = "SELECT record_loss(%s, %s)"
_RETRY_SECONDS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)
_MOST_TIMEOUTS = 3
_PATH_NAMES = ("inline", "object", "producer id")
"""For people, by the number of the path."""
_FULL = {"53100", "53200"}
"""Disk full, out of memory."""


class CommitCall:
    """The commits of one path, one after the other, on a connection of its own."""

    def __init__(
        self,
        database: Database,
        lease: HeldLease,
        *,
        path: int,
        seconds: float,
        clock: Clock,
        metrics: CallMetrics,
        last: LastCommit | None = None,
    ) -> None:
        """`last` is what the storages before have left, None if there were none."""
        self._database = database
        self._lease = lease
        self._path = path
        self._path_name = _PATH_NAMES[path]
        self._seconds = seconds
        """The longest wait for an answer."""
        self._connection: DatabaseConnection | None = None
        self._number = 0
        self._last = last or LastCommit()
        self._clock = clock
        self._metrics = metrics
        self.away_since: float | None = None
        """The monotonic time since when the database does not answer; None if it answered the last call."""

    @property
    def acknowledged(self) -> int:
        """The number of the last commit that is known to count."""
        return self._last.number

    @property
    def is_away(self) -> bool:
        return self.away_since is not None

    async def open(self) -> None:
        """Raises DatabaseAway, LeaseLost, CommitsLost.

        A broker that opens a path again goes on with its numbers: those of commits that it made before, or
        that may still arrive, must not be used twice.
        """
        try:
            number, confirmed_losses, loss = await self._ask(
                _OPEN,
                [
                    self._lease.incarnation,
                    self._lease.epoch,
                    self._lease.holds(COORDINATOR),
                    self._path,
                    self._last.number,
                    self._last.confirmed_losses,
                ],
            )
        except psycopg.Error as error:
            if error.sqlstate == LEASE_LOST:
                raise _lease_lost(error) from error
            if error.sqlstate == COMMITS_LOST:
                raise CommitsLost(one_line(error)) from error
            raise DatabaseAway(f"the broker cannot register its commits: {one_line(error)}") from error
        if loss is not None:
            raise CommitsLost(loss)
        self._number = self._last.number = number
        self._last.confirmed_losses = confirmed_losses

    def cut(self) -> None:
        """Break the connection: a call in flight fails at once."""
        if self._connection is not None:
            cut(self._connection)

    async def close(self) -> None:
        await self._disconnect()

    async def commit(
        self, now_ms: int, arguments: Sequence[Any], on_away: Callable[[Unavailable], None]
    ) -> Answer:
        """Raises Unavailable if the commit certainly does not count, LeaseLost and StorageFenced if this
        broker must not write any more. Calls `on_away` when the database does not answer: commits that wait
        for this one would wait for long."""
        timeouts = 0
        while True:
            self._number += 1
            values = [
                self._lease.incarnation,
                self._lease.epoch,
                self._path,
                self._number,
                now_ms,
                *arguments,
            ]
            began = self._clock.monotonic()
            try:
                answer = Answer(*await self._ask(_CALL, values))
                self._metrics.seconds.observe(self._clock.monotonic() - began)
            except (psycopg.Error, DatabaseAway) as error:
                self._metrics.failures += 1
                found = await self._resolve(error, on_away)
                if found is None:
                    timeouts += _is_timeout(error)
                    if not _is_worth_repeating(error) or timeouts == _MOST_TIMEOUTS:
                        raise _failure(error) from error
                    continue
                answer = found
            self._last.number = self._number
            self.away_since = None
            return answer

    async def reserve_producer_ids(self, count: int, end: int) -> int | None:
        """See `SharedState`. Raises Unavailable, LeaseLost. It is rare: no connection is kept for it.

        A call whose answer is lost needs no question: its ids stay unused.
        """
        try:
            first, self._last.number = await self._ask(
                _RESERVE,
                [self._lease.incarnation, self._lease.epoch, self._path, self._last.number, count, end],
            )
        except psycopg.Error as error:
            if error.sqlstate == LEASE_LOST:
                raise _lease_lost(error) from error
            raise _failure(error) from error
        finally:
            await self._disconnect()
        return None if first is None else int(first)

    async def _resolve(self, error: Exception, on_away: Callable[[Unavailable], None]) -> Answer | None:
        """Whether the last call counts: its answer, None if it certainly does not."""
        if isinstance(error, psycopg.Error) and error.sqlstate == LEASE_LOST:
            raise _lease_lost(error) from error
        call = f"commit {self._number} of the {self._path_name} path"
        log.warning("%s: %s; asking whether it counts", call, one_line(error))
        attempt = 0
        while True:
            if self._lease.is_lost:
                raise LeaseLost(
                    f"PostgreSQL at {self._database.name} did not answer until the lease was lost; whether "
                    f"{call} counts is not known"
                ) from error
            await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
            attempt += 1
            try:
                last, counted, *answer = await self._ask(
                    _RESOLVE, [self._lease.incarnation, self._path, self._number]
                )
            except (psycopg.Error, DatabaseAway) as again:
                if self.away_since is None:
                    self.away_since = self._clock.monotonic()
                on_away(
                    DatabaseAway(f"PostgreSQL at {self._database.name} does not answer: {one_line(again)}")
                )
                log.debug("%s path: %s", self._path_name, one_line(again))
                continue
            if last is None or last < self._last.number:
                await self._record_loss(last)
                raise StorageFenced(
                    f"PostgreSQL at {self._database.name} has lost acknowledged commits: commit "
                    f"{self._last.number} was answered, {last} is the last it knows. It was probably "
                    "replaced by an asynchronous standby. Restore the database that has them, or accept the "
                    "loss with 'posthouse storage accept-loss'"
                )
            self.away_since = None
            log.info("%s %s", call, "counts" if counted else "does not count")
            return Answer(*answer) if counted else None

    async def _record_loss(self, last: int | None) -> None:
        """In the database, so that no other broker takes over."""
        loss = (
            f"commit {self._last.number} of the {self._path_name} path was answered, and {last} is the last "
            "that it knows"
        )
        try:
            await self._ask(_RECORD_LOSS, [loss, self._last.confirmed_losses])
        except (psycopg.Error, DatabaseAway) as error:
            log.error("the database could not record that it has lost commits: %s", one_line(error))

    async def _ask(self, statement: str, values: Sequence[Any]) -> Sequence[Any]:
        """One row. After any failure the connection is closed, so that a late answer cannot be taken for
        another's."""
        connection = await self._connected()
        try:
            with time_limit(connection, self._seconds):
                cursor = await connection.cursor(binary=True).execute(statement, values, prepare=True)
                row = await cursor.fetchone()
        except BaseException:
            await self._disconnect()
            raise
        assert row is not None
        return row

    async def _connected(self) -> DatabaseConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(f"commits {self._path}")
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _lease_lost(error: psycopg.Error) -> LeaseLost:
    return LeaseLost(f"another broker has taken over: {one_line(error)}")


def _is_timeout(error: Exception) -> bool:
    """The database gave the statement up: the same again may take as long."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("57014", "55P03")


def _is_worth_repeating(error: Exception) -> bool:
    """Lost connections, deadlocks and timeouts pass; anything else would fail again."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is None or state[:2] in ("08", "40", "57") or state == "55P03"


def _failure(error: Exception) -> Unavailable:
    if isinstance(error, psycopg.Error) and error.sqlstate in _FULL:
        return StorageFull(f"PostgreSQL has no room: {one_line(error)}")
    if isinstance(error, psycopg.Error) and error.sqlstate == SCOPE_NEEDED:
        return ScopeNeeded(one_line(error))
    return DatabaseAway(f"PostgreSQL refused the commit: {one_line(error)}")
