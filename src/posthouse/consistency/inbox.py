"""Act once for each message, in the transaction of what it changes.

    inbox = Inbox("billing")
    with Session(engine) as session, session.begin():
        with inbox.once(session, message) as first:
            if first:
                session.add(Invoice(...))

The id of the message is a row of `posthouse_inbox`, written in the same transaction: both are there or
neither, so a message that comes again changes nothing.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from posthouse.consistency.connections import Outcome, dialect_of, run, run_async
from posthouse.consistency.dialects import Dialect, now_ms
from posthouse.consistency.errors import BadMessage, UnknownConnection
from posthouse.consistency.message_ids import message_id_of
from posthouse.consistency.statements import Statement

_LONGEST: Final = 200
_MOST_VERSION: Final = (1 << 63) - 1
_NOTHING: Final = Outcome(0)


class Newness(StrEnum):
    NEW = "new"
    REPEATED = "repeated"
    """The version that was there."""
    LATE = "late"
    """An earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What the version of an update says."""

    newness: Newness
    version: int
    before: int | None
    """The last version that the consumer has had; None if this is the first one of the entity."""

    def __bool__(self) -> bool:
        """Whether it is to be applied."""
        return self.newness is Newness.NEW

    @property
    def missing(self) -> range:
        """Versions in between that have not come. They are late when they come."""
        if self.newness is not Newness.NEW or self.before is None:
            return range(0)
        return range(self.before + 1, self.version)


class Inbox:
    """Of one consumer, by its name: consumers with other names have messages of their own."""

    def __init__(self, consumer: str) -> None:
        self._statements = _Statements(consumer)

    @contextmanager
    def once(self, connection: Any, message: Any) -> Iterator[bool]:
        """True for the first time. A consumer that gets the same message at the same time waits for the end
        of this transaction. Raises BadMessage, UnknownConnection and NoTransaction."""
        yield _is_first(run(connection, self._statements.arrival(connection, message)))

    def latest(self, connection: Any, entity: str, version: int) -> Update:
        """True if the version is newer than all before: it is stored then. Late and repeated ones are to be
        dropped."""
        _check_version(entity, version)
        known = self._statements.known_version(connection, entity)
        before = _NOTHING if _inserts_first(connection) else run(connection, known)
        if not before.rows:
            if _is_first(run(connection, self._statements.first_version(connection, entity, version))):
                return Update(newness=Newness.NEW, version=version, before=None)
            before = run(connection, known)
        update = _compared(before, version)
        if update:
            run(connection, self._statements.next_version(entity, version))
        return update

    def forget(self, connection: Any, *, older_than_days: float) -> int:
        """Messages that came before; returns how many. Keep them for as long as a message may come again."""
        return run(connection, self._statements.removal(connection, older_than_days)).changed


class AsyncInbox:
    """The same for asyncio."""

    def __init__(self, consumer: str) -> None:
        self._statements = _Statements(consumer)

    @asynccontextmanager
    async def once(self, connection: Any, message: Any) -> AsyncIterator[bool]:
        outcome = await run_async(connection, self._statements.arrival(connection, message))
        yield _is_first(outcome)

    async def latest(self, connection: Any, entity: str, version: int) -> Update:
        _check_version(entity, version)
        known = self._statements.known_version(connection, entity)
        before = _NOTHING if _inserts_first(connection) else await run_async(connection, known)
        if not before.rows:
            first = await run_async(connection, self._statements.first_version(connection, entity, version))
            if _is_first(first):
                return Update(newness=Newness.NEW, version=version, before=None)
            before = await run_async(connection, known)
        update = _compared(before, version)
        if update:
            await run_async(connection, self._statements.next_version(entity, version))
        return update

    async def forget(self, connection: Any, *, older_than_days: float) -> int:
        outcome = await run_async(connection, self._statements.removal(connection, older_than_days))
        return outcome.changed


class _Statements:
    def __init__(self, consumer: str) -> None:
        _check_text("the name of a consumer", consumer)
        self._consumer = consumer

    def arrival(self, connection: Any, message: Any) -> Statement:
        id = message_id_of(message)
        _check_text("the id of a message", id)
        dialect = dialect_of(connection)
        text = "posthouse_inbox (consumer, message_id, received_at) VALUES (?, ?, " + now_ms(dialect) + ")"
        return Statement(_inserted_once(dialect, text), (self._consumer, id))

    def first_version(self, connection: Any, entity: str, version: int) -> Statement:
        text = "posthouse_inbox_version (consumer, entity, version) VALUES (?, ?, ?)"
        return Statement(_inserted_once(dialect_of(connection), text), (self._consumer, entity, version))

    def known_version(self, connection: Any, entity: str) -> Statement:
        text = "SELECT version FROM posthouse_inbox_version WHERE consumer = ? AND entity = ?"
        if dialect_of(connection) is not Dialect.SQLITE:  # which has one writer at a time
            text += " FOR UPDATE"
        return Statement(text, (self._consumer, entity))

    def next_version(self, entity: str, version: int) -> Statement:
        text = "UPDATE posthouse_inbox_version SET version = ? WHERE consumer = ? AND entity = ?"
        return Statement(text, (version, self._consumer, entity))

    def removal(self, connection: Any, days: float) -> Statement:
        if days <= 0:
            raise BadMessage(f"messages of {days} days: more than 0 are wanted")
        now = now_ms(dialect_of(connection))
        text = f"DELETE FROM posthouse_inbox WHERE consumer = ? AND received_at < {now} - ?"
        return Statement(text, (self._consumer, int(days * 86_400_000)))


def _inserted_once(dialect: Dialect, text: str) -> str:
    # The count of ON DUPLICATE KEY would depend on a flag of the connection (CLIENT_FOUND_ROWS).
    if dialect is Dialect.MARIADB:
        return f"INSERT IGNORE INTO {text}"
    return f"INSERT INTO {text} ON CONFLICT DO NOTHING"


def _inserts_first(connection: Any) -> bool:
    # SQLite's writers exclude each other, but only from their first write on. In MariaDB an insert that is
    # ignored locks the row for reading: two consumers would wait for each other to change it.
    return dialect_of(connection) is Dialect.SQLITE


def _is_first(outcome: Outcome) -> bool:
    if outcome.changed not in (0, 1):
        raise UnknownConnection(
            f"the connection counts {outcome.changed} rows after an insert; whether the message "
            "is new is not known; do not use a pipeline here"
        )
    return outcome.changed == 1


def _compared(known: Outcome, version: int) -> Update:
    [row] = known.rows
    before = next(iter(row.values())) if isinstance(row, Mapping) else row[0]
    newness = Newness.NEW if version > before else Newness.LATE
    if version == before:
        newness = Newness.REPEATED
    return Update(newness=newness, version=version, before=before)


def _check_text(what: str, text: str) -> None:
    if not 0 < len(text) <= _LONGEST:
        raise BadMessage(f"{what} has 1 to {_LONGEST} characters, not {len(text)}")


def _check_version(entity: str, version: int) -> None:
    _check_text("the name of an entity", entity)
    if not 0 <= version <= _MOST_VERSION:
        raise BadMessage(f"a version is a number from 0 to {_MOST_VERSION}, not {version}")
