"""A connection to PostgreSQL for small statements that are repeated for as long as the broker runs."""

from typing import Any

from posthouse.storage.shared.database import Database, DatabaseConnection, meaning
from posthouse.storage.shared.time_limit import cut, time_limit


class Link:
    """Connects when it is used, and again after it broke. One statement at a time."""

    def __init__(self, database: Database, purpose: str, *, seconds: float, set_up: str = "") -> None:
        """`seconds` is the most that a statement may take, `set_up` a statement for each new connection."""
        self._database = database
        self._purpose = purpose
        self._seconds = seconds
        self._set_up = set_up
        self._connection: DatabaseConnection | None = None

    async def ask(self, statement: str, values: list[Any], *, doing: str) -> Any:
        """The first column of the first row. Raises DatabaseAway; then the next call connects again."""
        connection = self._connection or await self._connect()
        self._connection = None
        try:
            with time_limit(connection, self._seconds):
                async with meaning(doing):
                    found = await connection.execute(statement.encode(), values)
                    row = await found.fetchone()
        except BaseException:
            cut(connection)
            await connection.close()
            raise
        self._connection = connection
        return None if row is None else row[0]

    async def _connect(self) -> DatabaseConnection:
        made = await self._database.connect(self._purpose)
        if self._set_up:
            try:
                with time_limit(made, self._seconds):
                    async with meaning("setting up a connection"):
                        await made.execute(self._set_up.encode())
            except BaseException:
                await made.close()
                raise
        return made

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
