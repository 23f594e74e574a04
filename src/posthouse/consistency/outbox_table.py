"""The relay's side of the tables: leases of shards, batches and their numbers. `dialects` has the format."""

import json
import uuid
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from posthouse.consistency.databases import Database
from posthouse.consistency.dialects import now_ms, tables_of_inbox, tables_of_outbox
from posthouse.consistency.errors import BadDatabase, LeaseLost, NoTables

_LONGEST_REASON: Final = 1000
_COLUMNS: Final = "id, message_id, topic, message_key, value, headers"
_SIZE: Final = "coalesce(length(value), 0) + coalesce(length(message_key), 0) + length(headers)"
_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Of a batch with more than one message: a relay has it in memory."""


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
    is_new: bool
    """It was made by this relay just now: the broker cannot have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTurn:
    """What a relay finds that has leased a shard."""

    name: str
    """Of the shard, at the broker."""
    number: int
    """Of the last batch."""
    under_way: Batch | None
    """The last batch, if it may or may not have been sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxState:
    waiting: int
    due: int
    failed: int
    oldest_ms: int | None
    """The age of the oldest message that is due."""


class OutboxTable:
    """`owner` is the relay. Every call is one transaction.

    Only what a batch consists of has to be on the disk before it is sent. A lease that is lost in a crash of
    the database does no harm: the connection is lost with it, and numbers decide what is sent. Rows that come
    back are those of a batch whose number the broker knows.
    """

    def __init__(self, database: Database, owner: str, *, lease_seconds: float) -> None:
        self._database = database
        self._owner = owner
        self._lease_ms = int(lease_seconds * 1000)
        self._now = now_ms(database.dialect)

    def check(self) -> None:
        """Raises NoTables."""
        with self._database.transaction():
            rows = self._database.run("SELECT name FROM posthouse_outbox_shard WHERE shard = 0").rows
        if not rows:
            raise NoTables("the outbox has no shards; drop its tables, and run 'posthouse outbox init' again")

    def busy_shards(self) -> list[int]:
        """Of no other relay, with messages that are due or a batch that may not have been sent."""
        text = (
            "SELECT shard FROM posthouse_outbox_shard "
            f"WHERE stopped IS NULL AND (owner IS NULL OR owner = ? OR lease_until < {self._now}) "
            "AND (rows_sent <> '[]' OR shard IN (SELECT shard FROM posthouse_outbox "
            f"WHERE failed IS NULL AND (deliver_at IS NULL OR deliver_at <= {self._now}))) ORDER BY shard"
        )
        with self._database.transaction():
            return [shard for (shard,) in self._database.run(text, [self._owner]).rows]

    def take(self, shard: int) -> ShardTurn | None:
        """Lease it; None if another relay has it."""
        text = (
            f"UPDATE posthouse_outbox_shard SET owner = ?, lease_until = {self._now} + ? WHERE shard = ? "
            f"AND (owner IS NULL OR owner = ? OR lease_until < {self._now})"
        )
        with self._database.transaction():
            self._database.need_no_sync()
            self._database.run(text, [self._owner, self._lease_ms, shard, self._owner])
            found = self._leased(shard)
            if found is None:
                return None
            name, number, sent = found
            messages = self._of_rows(sent) if sent else []  # there are none if somebody has deleted them
        under_way = Batch(number=number, messages=messages, is_new=False) if messages else None
        return ShardTurn(name=f"{name}.{shard}", number=number, under_way=under_way)

    def release(self, shard: int) -> None:
        with self._database.transaction():
            self._database.need_no_sync()
            self._release(shard)

    def renew(self, shard: int) -> None:
        """Raises LeaseLost."""
        with self._database.transaction():
            self._database.need_no_sync()
            self._renewed(shard)

    def next_batch(self, shard: int, most: int) -> Batch | None:
        """The messages of the batch before are removed: the broker has them. None if nothing is due: then the
        lease is over. Raises LeaseLost."""
        with self._database.transaction():
            _, number, sent = self._renewed(shard)
            batch = self._next(shard, number, sent, most)
            if batch is None:
                self._release(shard)
                self._database.need_no_sync()
        return batch

    def finish(self, shard: int) -> None:
        """The messages of the last batch are removed, because the broker has them; the lease is over. Raises
        LeaseLost."""
        with self._database.transaction():
            self._database.need_no_sync()
            _, number, sent = self._renewed(shard)
            self._remove(sent)
            self._note(shard, number, [])
            self._release(shard)

    def stop(self, shard: int, reason: str, withdrawn: Batch | None) -> None:
        """No relay sends its messages until the outbox has a new name. `withdrawn` is a batch that was not
        sent, though the broker has one with its number. Raises LeaseLost."""
        with self._database.transaction():
            self._renewed(shard)
            if withdrawn is not None:
                self._note(shard, withdrawn.number - 1, [])
            text = "UPDATE posthouse_outbox_shard SET stopped = ?, owner = NULL WHERE shard = ?"
            self._database.run(text, [reason[:_LONGEST_REASON], shard])

    def stopped(self) -> list[tuple[int, str]]:
        """Shards, and why."""
        text = "SELECT shard, stopped FROM posthouse_outbox_shard WHERE stopped IS NOT NULL ORDER BY shard"
        with self._database.transaction():
            return [(shard, reason) for shard, reason in self._database.run(text).rows]

    def rename(self) -> str:
        """Begin again under a name that the broker does not know; returns it. What is in the table is sent
        under it. Raises BadDatabase while a relay has a lease."""
        name = f"outbox-{uuid.uuid4().hex}"
        leased = (
            "SELECT count(*) FROM posthouse_outbox_shard "
            f"WHERE owner IS NOT NULL AND lease_until > {self._now}"
        )
        with self._database.transaction():
            # Locks all rows before it looks at their leases: no relay gets one in between.
            text = "UPDATE posthouse_outbox_shard SET name = ?, batch = 0, rows_sent = '[]', stopped = NULL"
            self._database.run(text, [name])
            [[relays]] = self._database.run(leased).rows
            if relays:
                raise BadDatabase(
                    "a relay is sending messages of the outbox; stop it, and try again after 30 s"
                )
            # A relay that wakes up after its lease must not go on under the old name.
            self._database.run("UPDATE posthouse_outbox_shard SET owner = NULL")
        return name

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
        return Batch(number=batch.number, messages=kept, is_new=False) if kept else None

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

    def _renewed(self, shard: int) -> tuple[str, int, list[int]]:
        """The name of the outbox, the number of the last batch, and its rows. The row of the shard is locked
        from here on."""
        text = (
            f"UPDATE posthouse_outbox_shard SET lease_until = {self._now} + ? WHERE shard = ? AND owner = ?"
        )
        # A statement that changes nothing counts 0 with MariaDB, and renewals within one millisecond change
        # nothing: the row is read, too.
        self._database.run(text, [self._lease_ms, shard, self._owner])
        found = self._leased(shard)
        if found is None:
            raise LeaseLost(f"shard {shard} of the outbox belongs to another relay now")
        return found

    def _leased(self, shard: int) -> tuple[str, int, list[int]] | None:
        """None if another relay has it."""
        text = "SELECT name, batch, rows_sent FROM posthouse_outbox_shard WHERE shard = ? AND owner = ?"
        rows = self._database.run(text, [shard, self._owner]).rows
        if not rows:
            return None
        [[name, number, sent]] = rows
        return name, number, json.loads(sent)

    def _release(self, shard: int) -> None:
        text = "UPDATE posthouse_outbox_shard SET owner = NULL WHERE shard = ? AND owner = ?"
        self._database.run(text, [shard, self._owner])

    def _next(self, shard: int, number: int, sent: Sequence[int], most: int) -> Batch | None:
        """The batch after `number`, whose messages are removed."""
        text = (
            f"SELECT id, {_SIZE} FROM posthouse_outbox WHERE shard = ? AND failed IS NULL "
            f"AND (deliver_at IS NULL OR deliver_at <= {self._now}) ORDER BY id LIMIT {most}"
        )
        self._remove(sent)
        rows = _first_of(self._database.run(text, [shard]).rows)
        found = self._of_rows(rows) if rows else []
        if found:
            number += 1
        if found or sent:
            self._note(shard, number, [each.row for each in found])
        return Batch(number=number, messages=found, is_new=True) if found else None

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
        for text in (*tables_of_outbox(database.dialect), *tables_of_inbox(database.dialect)):
            database.run(text)


def _first_of(sizes: Sequence[Sequence[int]]) -> list[int]:
    """The first rows that have no more bytes than a batch may have, and at least one."""
    rows: list[int] = []
    total = 0
    for row, size in sizes:
        total += size
        if rows and total > _BATCH_BYTES:
            break
        rows.append(row)
    return rows


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
