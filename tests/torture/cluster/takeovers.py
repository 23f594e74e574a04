"""Notes when another broker takes over: what only the one before knew is forgotten then."""

import asyncio

import psycopg

from posthouse.model.scopes import COORDINATOR, scope_of_group
from tests.checker.history import Takeover
from tests.torture.queues.places import PLACES
from tests.torture.recording import Recorder
from tests.torture.shares.members import GROUP

_LOOK_SECONDS = 0.1
_CONNECT_SECONDS = 2
_SCOPES = [COORDINATOR.name, scope_of_group(GROUP).name, *(place.scope.name for place in PLACES)]
_EPOCHS = "SELECT name, epoch FROM posthouse.scope WHERE name = ANY(%s)"


class TakeoverWatch:
    """Asks the database, which may be away: then all is one long takeover."""

    def __init__(self, recorder: Recorder, database: str) -> None:
        self._recorder = recorder
        self._database = database
        self._epochs: dict[str, int] = {}
        self._asked_at = recorder.now()

    async def run(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._database, autocommit=True, connect_timeout=_CONNECT_SECONDS
                ) as connection:
                    while True:
                        await self._look(connection)
                        await asyncio.sleep(_LOOK_SECONDS)
            except psycopg.Error:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, connection: psycopg.AsyncConnection[tuple[str, int]]) -> None:
        asked_at = self._recorder.now()
        epochs = dict(await (await connection.execute(_EPOCHS, [_SCOPES])).fetchall())
        if self._epochs and epochs != self._epochs:
            self._recorder.add(Takeover(self._asked_at, self._recorder.now()))
        self._epochs, self._asked_at = epochs, asked_at
