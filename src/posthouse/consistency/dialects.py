"""Databases that can hold an outbox and an inbox: their SQL.

    posthouse_outbox          messages that are to be sent
        id                    in the order of publishing; a relay sends the messages of a shard in this order
        message_id            of the message, also in its header `amqp.message-id`
        shard                 a hash of the key: messages with one key are in one shard
        topic, message_key, value, headers (JSON)
        deliver_at            not to be sent before; milliseconds since 1970, as all times here
        created_at
        failed                why the broker refuses the message; such ones are left alone
    posthouse_outbox_shard    one row for each of the shards
        shard
        name                  of the outbox at the broker: a commit is remembered under NAME.SHARD
        batch                 the number of the last batch
        rows_sent             the ids of its messages (JSON); they are deleted when the broker has them
        owner, lease_until    the relay that sends the messages of the shard
        stopped               why no relay sends them: the broker has batches that are not known here
    posthouse_inbox           messages that a consumer has had
        consumer, message_id, received_at
    posthouse_inbox_version   the last version of an entity that a consumer has had
        consumer, entity, version

A batch gets its number and its messages in one transaction of the database, before it is sent. The broker
makes the messages and the number durable in one commit. So after any crash the number tells whether they were
sent.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SHARDS: Final = 16
"""Part of the format: publishers and relays agree on it."""
CHANNEL: Final = "posthouse_outbox"
"""That PostgreSQL notifies of new messages."""


class Dialect(StrEnum):
    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"
    SQLITE = "sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Types:
    id: str
    bytes: str
    text: str
    json: str
    id_text: str
    """Compared exactly, blanks at the end included."""
    now_ms: str
    name: str
    """Of a new outbox: drawn when the statement runs."""


_TYPES: Final = {
    Dialect.POSTGRESQL: _Types(
        id="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        bytes="bytea",
        text="text",
        json="text",
        id_text="varchar(200)",
        now_ms="(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        name="'outbox-' || replace(gen_random_uuid()::text, '-', '')",
    ),
    Dialect.MARIADB: _Types(
        id="bigint AUTO_INCREMENT PRIMARY KEY",
        bytes="longblob",
        text="text",
        json="longtext",
        id_text="varbinary(800)",
        # Not of the local time, which comes twice when summer time ends.
        now_ms="(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
        name="concat('outbox-', replace(uuid(), '-', ''))",
    ),
    Dialect.SQLITE: _Types(
        id="integer PRIMARY KEY AUTOINCREMENT",
        bytes="blob",
        text="text",
        json="text",
        id_text="varchar(200)",
        now_ms="CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        name="'outbox-' || lower(hex(randomblob(16)))",
    ),
}
_OUTBOX: Final = """
CREATE TABLE posthouse_outbox (
    id {id},
    message_id varchar(200) NOT NULL,
    shard smallint NOT NULL,
    topic varchar(249) NOT NULL,
    message_key {bytes},
    value {bytes},
    headers {json} NOT NULL,
    deliver_at bigint,
    created_at bigint NOT NULL,
    failed {text}
)"""
_SHARDS: Final = """
CREATE TABLE posthouse_outbox_shard (
    shard smallint PRIMARY KEY,
    name varchar(100) NOT NULL,
    batch bigint NOT NULL,
    rows_sent {json} NOT NULL,
    owner varchar(200),
    lease_until bigint NOT NULL,
    stopped {text}
)"""
_INBOX: Final = """
CREATE TABLE posthouse_inbox (
    consumer {id_text} NOT NULL,
    message_id {id_text} NOT NULL,
    received_at bigint NOT NULL,
    PRIMARY KEY (consumer, message_id)
)"""
_VERSIONS: Final = """
CREATE TABLE posthouse_inbox_version (
    consumer {id_text} NOT NULL,
    entity {id_text} NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (consumer, entity)
)"""
_WAITING: Final = "CREATE INDEX posthouse_outbox_waiting ON posthouse_outbox (shard, id)"
_ONLY_WAITING: Final = " WHERE failed IS NULL"
"""Which MariaDB has not for an index."""
_LATER: Final = "CREATE INDEX posthouse_outbox_later ON posthouse_outbox (deliver_at)"
_RECEIVED: Final = "CREATE INDEX posthouse_inbox_received ON posthouse_inbox (consumer, received_at)"
_NOTIFYING: Final = (
    f"""
CREATE FUNCTION posthouse_outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{CHANNEL}', '');
    RETURN NULL;
END $$""",
    """
CREATE TRIGGER posthouse_outbox_inserted AFTER INSERT ON posthouse_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION posthouse_outbox_notify()""",
)


def now_ms(dialect: Dialect) -> str:
    """The database's own time, as an expression."""
    return _TYPES[dialect].now_ms


def tables_of_outbox(dialect: Dialect) -> list[str]:
    """The statements that create them. Wherever they run the outbox gets a name of its own."""
    waiting = _WAITING if dialect is Dialect.MARIADB else _WAITING + _ONLY_WAITING
    texts = [_filled(_OUTBOX, dialect), _filled(_SHARDS, dialect), waiting, _LATER]
    if dialect is Dialect.POSTGRESQL:
        texts += _NOTIFYING
    columns = "INSERT INTO posthouse_outbox_shard (shard, name, batch, rows_sent, lease_until)"
    others = " UNION ALL ".join(f"SELECT {shard} AS shard" for shard in range(1, SHARDS))
    texts.append(f"{columns} VALUES (0, {_TYPES[dialect].name}, 0, '[]', 0)")
    texts.append(
        f"{columns} SELECT others.shard, first.name, 0, '[]', 0 FROM posthouse_outbox_shard first "
        f"CROSS JOIN ({others}) others WHERE first.shard = 0"
    )
    return [text.strip() for text in texts]


def tables_of_inbox(dialect: Dialect) -> list[str]:
    return [text.strip() for text in (_filled(_INBOX, dialect), _filled(_VERSIONS, dialect), _RECEIVED)]


def removal_of_tables(dialect: Dialect) -> list[str]:
    """Of both, with all that they contain."""
    names = ("posthouse_outbox", "posthouse_outbox_shard", "posthouse_inbox", "posthouse_inbox_version")
    texts = [f"DROP TABLE {name}" for name in names]
    if dialect is Dialect.POSTGRESQL:
        texts.append("DROP FUNCTION posthouse_outbox_notify()")
    return texts


def _filled(text: str, dialect: Dialect) -> str:
    types = _TYPES[dialect]
    filled = text.format(
        id=types.id, bytes=types.bytes, text=types.text, json=types.json, id_text=types.id_text
    )
    if dialect is Dialect.MARIADB:  # ids are compared byte for byte, as elsewhere
        filled += " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return filled
