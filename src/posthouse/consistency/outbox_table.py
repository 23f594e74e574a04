"""The relay's side of the tables: leases of shards, batches and their numbers. `dialects` has the format."""

import json
import uuid
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from posthouse.consistency.databases import Database
from posthouse.consistency.dialects import now_ms, tables_of_inbox, tables_of_outbox
from posthouse.consistency.errors import LeaseLost, NoTables

_LONGEST_REASON: Final = 1000
_COLUMNS: Final = "id, message_id, topic, message_key, value, headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    row: int
    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`number` belongs to these messages for ever."""

    number: int
    messages: Sequence[OutboxMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxState:
    waiting: int
    due: int
    failed: int
    oldest_ms: int | None
    """The age of the oldest message that is due."""


class OutboxTable:
    """`owner` is the relay. Every call is one transaction."""

    def __init__(self, database: Database, owner: str, *, lease_seconds: float) -> None:
        self._database = database
        self._owner = owner
        self._lease_ms = int(lease_seconds * 1000)
        self._now = now_ms(database.dialect)

    def name(self) -> str:
        """Of the outbox, at the broker."""
        with self._database.transaction():
            rows = self._database.run("SELECT name FROM posthouse_outbox_shard WHERE shard = 0").rows
        if not rows:
            raise NoTables("the outbox has no shards; drop its tables, and run 'posthouse outbox init' again")
        name: str = rows[0][0]
        return name

    def busy_shards(self) -> list[int]:
        """With messages that are due, or a batch that may not have been sent, and of no other relay."""
        text = (
            "SELECT shard FROM posthouse_outbox_shard "
            f"WHERE (owner IS NULL OR owner = ? OR lease_until < {self._now}) "
            "AND (rows_sent <> '[]' OR shard IN (SELECT shard FROM posthouse_outbox "
            f"WHERE failed IS NULL AND (deliver_at IS NULL OR deliver_at <= {self._now}))) ORDER BY shard"
        )
        with self._database.transaction():
            return [shard for (shard,) in self._database.run(text, [self._owner]).rows]

    def take(self, shard: int) -> bool:
        """Lease it; False if another relay has it."""
        text = (
            f"UPDATE posthouse_outbox_shard SET owner = ?, lease_until = {self._now} + ? WHERE shard = ? "
            f"AND (owner IS NULL OR owner = ? OR lease_until < {self._now})"
        )
        with self._database.transaction():
            return self._database.run(text, [self._owner, self._lease_ms, shard, self._owner]).changed == 1

    def release(self, shard: int) -> None:
        text = "UPDATE posthouse_outbox_shard SET owner = NULL WHERE shard = ? AND owner = ?"
        with self._database.transaction():
            self._database.run(text, [shard, self._owner])

    def batch_under_way(self, shard: int) -> Batch | None:
        """That may or may not have been sent. Raises LeaseLost."""
        with self._database.transaction():
            number, rows = self._renewed(shard)
            return Batch(number=number, messages=self._of_rows(rows)) if rows else None

    def next_batch(self, shard: int, most: int) -> Batch | None:
        """The messages of the batch before are removed: the broker has them. None if nothing is due. Raises
        LeaseLost."""
        text = (
            f"SELECT {_COLUMNS} FROM posthouse_outbox WHERE shard = ? AND failed IS NULL "
            f"AND (deliver_at IS NULL OR deliver_at <= {self._now}) ORDER BY id LIMIT {most}"
        )
        with self._database.transaction():
            number, sent = self._renewed(shard)
            self._remove(sent)
            found = [_message(row) for row in self._database.run(text, [shard]).rows]
            if found:
                number += 1
            if found or sent:
                self._note(shard, number, [each.row for each in found])
        return Batch(number=number, messages=found) if found else None

    def set_aside(self, shard: int, batch: Batch, reasons: Mapping[int, str]) -> Batch | None:
        """Leave out messages of a batch that was not sent, by their rows. The others keep its number; None if
        there are none. Raises LeaseLost."""
        kept = [each for each in batch.messages if each.row not in reasons]
        with self._database.transaction():
            self._renewed(shard)
            for row, reason in reasons.items():
                text = "UPDATE posthouse_outbox SET failed = ? WHERE id = ?"
                self._database.run(text, [reason[:_LONGEST_REASON], row])
            self._note(shard, batch.number, [each.row for each in kept])
        return Batch(number=batch.number, messages=kept) if kept else None

    def retry_failed(self) -> int:
        with self._database.transaction():
            text = "UPDATE posthouse_outbox SET failed = NULL WHERE failed IS NOT NULL"
            return self._database.run(text).changed

    def failures(self, most: int) -> list[tuple[int, str, str, str]]:
        """Row, id, topic and reason of the first that were set aside."""
        text = (
            "SELECT id, message_id, topic, failed FROM posthouse_outbox "
            f"WHERE failed IS NOT NULL ORDER BY id LIMIT {most}"
        )
        with self._database.transaction():
            return [(row, id, topic, reason) for row, id, topic, reason in self._database.run(text).rows]

    def state(self) -> OutboxState:
        due = f"failed IS NULL AND (deliver_at IS NULL OR deliver_at <= {self._now})"
        text = (
            "SELECT count(CASE WHEN failed IS NULL THEN 1 END), "
            f"count(CASE WHEN {due} THEN 1 END), count(failed), "
            f"{self._now} - min(CASE WHEN {due} THEN coalesce(deliver_at, created_at) END) "
            "FROM posthouse_outbox"
        )
        with self._database.transaction():
            [[waiting, due_now, failed, oldest]] = self._database.run(text).rows
        return OutboxState(waiting=waiting, due=due_now, failed=failed, oldest_ms=oldest)

    def due_in_ms(self) -> int | None:
        """Until the next message that has a time is due; None if there is none."""
        text = (
            f"SELECT min(deliver_at) - {self._now} FROM posthouse_outbox "
            f"WHERE failed IS NULL AND deliver_at > {self._now}"
        )
        with self._database.transaction():
            [[left]] = self._database.run(text).rows
        return None if left is None else max(0, left)

    def _renewed(self, shard: int) -> tuple[int, list[int]]:
        """The number of the last batch, and its rows. The row of the shard is locked from here on."""
        text = (
            f"UPDATE posthouse_outbox_shard SET lease_until = {self._now} + ? WHERE shard = ? AND owner = ?"
        )
        # A statement that changes nothing counts 0 with MariaDB, and renewals within one millisecond change
        # nothing: the row is read, too.
        self._database.run(text, [self._lease_ms, shard, self._owner])
        rows = self._database.run(
            "SELECT batch, rows_sent FROM posthouse_outbox_shard WHERE shard = ? AND owner = ?",
            [shard, self._owner],
        ).rows
        if not rows:
            raise LeaseLost(f"shard {shard} of the outbox belongs to another relay now")
        [[number, sent]] = rows
        return number, json.loads(sent)

    def _note(self, shard: int, number: int, rows: Sequence[int]) -> None:
        text = "UPDATE posthouse_outbox_shard SET batch = ?, rows_sent = ? WHERE shard = ?"
        self._database.run(text, [number, json.dumps(rows), shard])

    def _remove(self, rows: Sequence[int]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows))
            self._database.run(f"DELETE FROM posthouse_outbox WHERE id IN ({marks})", rows)

    def _of_rows(self, rows: Sequence[int]) -> list[OutboxMessage]:
        marks = ", ".join("?" * len(rows))
        text = f"SELECT {_COLUMNS} FROM posthouse_outbox WHERE id IN ({marks}) ORDER BY id"
        return [_message(row) for row in self._database.run(text, rows).rows]


def init(database: Database) -> None:
    """Make the tables of outbox and inbox."""
    with database.transaction():
        for text in (*tables_of_outbox(database.dialect, new_name()), *tables_of_inbox(database.dialect)):
            database.run(text)


def new_name() -> str:
    return f"outbox-{uuid.uuid4().hex}"


def _message(row: Sequence[Any]) -> OutboxMessage:
    number, id, topic, key, value, headers = row
    return OutboxMessage(
        row=number,
        id=id,
        topic=topic,
        key=None if key is None else bytes(key),
        value=None if value is None else bytes(value),
        headers=[(name, _header(text)) for name, text in json.loads(headers)],
    )


def _header(stored: Any) -> bytes | None:
    if stored is None:
        return None
    return stored.encode() if isinstance(stored, str) else b64decode(stored["base64"])
