"""Commits without one of their safeguards, for negative controls."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from posthouse.model.errors import Unavailable
from posthouse.storage.shared.commits.commit_call import CommitCall
from posthouse.storage.shared.commits.commit_group import Answer
from posthouse.storage.shared.database import DatabaseConnection

WITHOUT_CHECK_OF_THE_LEASE = """
CREATE OR REPLACE FUNCTION posthouse.check_lease(p_holder uuid, p_epoch bigint, p_scopes text[] DEFAULT '{}')
RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$
"""


class ForgetfulCall(CommitCall):
    """Repeats a call whose answer was lost, whether it counts or not."""

    async def _resolve(self, error: Exception, on_away: Callable[[Unavailable], None]) -> Answer | None:
        await super()._resolve(error, on_away)
        return None


class HastyCall(CommitCall):
    """Answers before the transaction has ended."""

    seconds_ahead = 0.0
    _ending: asyncio.Task[None] | None = None

    async def _ask(self, statement: str, values: Sequence[Any]) -> Sequence[Any]:
        if self._ending is not None:
            await self._ending
        row = await super()._ask(statement, values)
        self._ending = asyncio.create_task(self._end())
        if "commit_group" not in statement:  # the path of producer ids disconnects after each statement
            await self._ending
        return row

    async def _connected(self) -> DatabaseConnection:
        connection = await super()._connected()
        if connection.autocommit:
            await connection.set_autocommit(False)
        return connection

    async def _end(self) -> None:
        connection = self._connection
        assert connection is not None
        await asyncio.sleep(self.seconds_ahead)
        with contextlib.suppress(psycopg.Error):
            await connection.commit()


class VeryHastyCall(HastyCall):
    """Nor does it notice that the database does not have what it answered: it would stop the cluster."""

    seconds_ahead = 0.05

    async def open(self) -> None:
        self._last.number = 0
        await super().open()

    async def _resolve(self, error: Exception, on_away: Callable[[Unavailable], None]) -> Answer | None:
        self._last.number = 0
        return await super()._resolve(error, on_away)

    async def _record_loss(self, last: int | None) -> None:
        """No-op."""
