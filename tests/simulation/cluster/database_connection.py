"""A connection to the simulated PostgreSQL, with as much of psycopg's as the broker uses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.simulation.cluster.database_server import COMMIT, ROLLBACK, DatabaseServer, Session
from tests.simulation.cluster.links import DATABASE, Stream
from tests.simulation.cluster.statements import Row, statement_of
from tests.simulation.world import Entry

_CONNECT_SECONDS = 3.0
_KEEPALIVE_SECONDS = 9.0
"""After so long without an answer the system has found out that the way is cut."""


class SimulatedCursor:
    def __init__(self, connection: "SimulatedConnection") -> None:
        self._connection = connection
        self._rows: list[Row] = []

    async def execute(self, statement: str | bytes, values: Any = None, **options: Any) -> Self:
        self._rows = list(await self._connection.ask(statement_of(statement), values))
        return self

    async def fetchone(self) -> Row | None:
        return self._rows.pop(0) if self._rows else None

    async def fetchall(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    async def fetchmany(self, size: int) -> list[Row]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is to be released."""


class SimulatedConnection:
    server: DatabaseServer
    """That of the scenario: see `connections_to`."""

    def __init__(self, loop: Any, server: DatabaseServer) -> None:
        self._loop = loop
        self._server = server
        self._out = Stream(server.links.way(loop.host, DATABASE))
        self._session: Session | None = None
        self._answer: asyncio.Future[list[Row]] | None = None
        self._in_transaction = False
        self.autocommit = True
        self.closed = False

    @classmethod
    async def connect(cls, conninfo: str, **options: Any) -> "SimulatedConnection":
        loop = asyncio.get_running_loop()
        made = cls(loop, cls.server)
        connected: asyncio.Future[Session | None] = loop.create_future()

        def answer(session: Session | None) -> None:
            if not connected.done():
                connected.set_result(session)
            elif session is not None:  # nobody waits any more
                made._session = session
                made._end()

        made._to_server(made._server.connect, loop, made._out, made._lost, answer)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                made._session = await connected
        except TimeoutError:
            raise psycopg.OperationalError("connection timeout expired") from None
        if made._session is None:
            raise psycopg.OperationalError("connection refused")
        return made

    def _to_server(self, action: Any, *args: Any) -> None:
        self._out.send(Entry(self._server.process, None, action, args))

    async def ask(self, statement: str, values: Any) -> list[Row]:
        if self.closed or self._session is None:
            raise psycopg.OperationalError("the connection is closed")
        assert self._answer is None, "one statement at a time"
        answer: asyncio.Future[list[Row]] = self._loop.create_future()
        self._answer = answer
        in_transaction = self._in_transaction or not self.autocommit
        self._to_server(self._session.receive, statement, values, in_transaction, self._answered)
        keepalive = self._loop.call_later(_KEEPALIVE_SECONDS, self._look)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cut()
            raise
        finally:
            keepalive.cancel()
            self._answer = None

    def _answered(self, answer: list[Row] | psycopg.Error) -> None:
        waiting = self._answer
        if waiting is None or waiting.done():
            return
        if isinstance(answer, psycopg.Error):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _look(self) -> None:
        links = self._server.links.both(self._loop.host, DATABASE)
        if self._answer is not None and any(link.is_cut for link in links):
            self._lost()

    def _lost(self) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(psycopg.OperationalError("the connection to the server was lost"))

    def cut(self) -> None:
        """What was sent may still arrive."""
        if not self.closed:
            self._lost()
            self._end()

    def _end(self) -> None:
        if self._session is not None:
            self._to_server(self._session.end)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._end()

    async def execute(self, statement: str | bytes, values: Any = None, **options: Any) -> SimulatedCursor:
        return await SimulatedCursor(self).execute(statement, values)

    def cursor(self, **options: Any) -> SimulatedCursor:
        return SimulatedCursor(self)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self._in_transaction = True
        try:
            yield
        except BaseException:
            self._in_transaction = False
            if not self.closed:
                await self.ask(ROLLBACK, None)
            raise
        self._in_transaction = False
        await self.ask(COMMIT, None)

    async def set_autocommit(self, value: bool) -> None:
        self.autocommit = value

    async def commit(self) -> None:
        await self.ask(COMMIT, None)


def connections_to(server: DatabaseServer) -> type[SimulatedConnection]:
    return type("ConnectionOfScenario", (SimulatedConnection,), {"server": server})


def cut(connection: SimulatedConnection) -> None:
    """In the place of `storage.shared.time_limit.cut`."""
    connection.cut()
