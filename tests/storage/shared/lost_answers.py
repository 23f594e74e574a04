"""A database whose answers to changes of topics are lost."""

import asyncio
from types import TracebackType
from typing import Any

import psycopg

from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection


class LostAnswers:
    """Transactions that change topics count, but the answers of the next `count` are lost."""

    def __init__(self, database: Database) -> None:
        self._connect = database.connect
        self.count = 0
        self.is_silent = False
        """Nothing is changed, nor is it told what was changed."""
        self.is_late = False
        """The next commit reaches the database when it may `arrive`; connections after it fail."""
        self.arrive = asyncio.Event()
        self.late: asyncio.Task[None] | None = None
        self.spared: asyncio.Task[Any] | None = None
        """What this task changes is answered, from `spared_from` on."""
        self.spared_from = asyncio.Event()
        database.connect = self.connect  # type: ignore[method-assign]

    async def connect(self, purpose: str, **options: Any) -> DatabaseConnection:
        if self.is_silent and purpose in ("topics", "doubts"):
            raise DatabaseAway("injected")
        if self.spared is not None and asyncio.current_task() is self.spared:
            await self.spared_from.wait()
            return await self._connect(purpose, **options)
        connection = await self._connect(purpose, **options)
        if purpose == "topics" and self.count > 0:
            self.count -= 1
            begin, close = connection.transaction, connection.close
            if self.is_late:
                if self.late is not None:
                    await close()
                    raise DatabaseAway("injected")
                connection.close = _noop  # type: ignore[method-assign]
                connection.transaction = lambda: _LateCommit(self, begin(), close)  # type: ignore[method-assign,assignment,misc]
            else:
                connection.transaction = lambda: _BrokenAtTheEnd(begin())  # type: ignore[method-assign,assignment,misc]
        return connection


class _BrokenAtTheEnd:
    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    async def __aenter__(self) -> None:
        await self._transaction.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._commit(kind, error, trace)
        raise psycopg.OperationalError("the server closed the connection")

    async def _commit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transaction.__aexit__(kind, error, trace)


class _LateCommit(_BrokenAtTheEnd):
    def __init__(self, lost: LostAnswers, transaction: Any, close: Any) -> None:
        super().__init__(transaction)
        self._lost = lost
        self._close = close

    async def _commit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lost.late = asyncio.create_task(self._arrive())

    async def _arrive(self) -> None:
        await self._lost.arrive.wait()
        await self._transaction.__aexit__(None, None, None)
        await self._close()


async def _noop() -> None:
    """The connection is closed when its commit has arrived."""
