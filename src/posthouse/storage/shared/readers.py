"""Connections for reads of the database: a few, made when they are needed, each for one read at a time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from posthouse.model.errors import PosthouseError
from posthouse.storage.remote_metrics import CallMetrics
from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection, translated
from posthouse.storage.shared.time_limit import time_limit

_CONNECTIONS = 4
_SECONDS = 6.0
"""A little longer than the timeout of statements, which the database itself keeps while it runs."""


class Readers:
    def __init__(self, database: Database, connections: int = _CONNECTIONS, purpose: str = "reads") -> None:
        self._database = database
        self._purpose = purpose
        self._turn = asyncio.Semaphore(connections)
        self._idle: list[DatabaseConnection] = []
        self.metrics = CallMetrics()
        """Of reads, with the time that they wait for a connection."""

    @asynccontextmanager
    async def connection(self, doing: str) -> AsyncIterator[DatabaseConnection]:
        """Raises DatabaseAway; `doing` says in words what was tried."""
        began = time.monotonic()
        try:
            async with self._leased(doing) as made:
                yield made
        except DatabaseAway:
            self.metrics.failures += 1
            raise
        finally:
            self.metrics.seconds.observe(time.monotonic() - began)

    @asynccontextmanager
    async def _leased(self, doing: str) -> AsyncIterator[DatabaseConnection]:
        async with self._turn:
            made = self._idle.pop() if self._idle else await self._database.connect(self._purpose)
            try:
                with time_limit(made, _SECONDS):
                    yield made
            except psycopg.Error as error:
                await made.close()
                # The server may have restarted: the others are most likely broken, too.
                await self.close()
                raise translated(error, doing) from error
            except PosthouseError:
                if not made.closed:
                    self._idle.append(made)
                raise
            except BaseException:
                await made.close()
                raise
            if not made.closed:
                self._idle.append(made)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for each in idle:
            await each.close()
