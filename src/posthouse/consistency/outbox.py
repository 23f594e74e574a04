"""Publish a message in the transaction of the change that it is about.

    with Session(engine) as session, session.begin():
        session.add(order)
        Outbox().publish(session, "orders", {"id": 4711}, key="customer-7")

The message is a row of the table `posthouse_outbox`. It is there if the transaction is committed, and only
then; a relay (`posthouse outbox relay`) sends it.
"""

import json
import secrets
import time
import uuid
import zlib
from base64 import b64encode
from datetime import datetime
from typing import Any, Final

from posthouse.consistency.connections import dialect_of, run, run_async
from posthouse.consistency.contents import Content, Headers, checked_headers, encoded
from posthouse.consistency.dialects import SHARDS, now_ms
from posthouse.consistency.errors import BadMessage
from posthouse.consistency.statements import Statement
from posthouse.model.errors import InvalidTopicName
from posthouse.model.topics import check_topic_name

LONGEST_ID: Final = 200


class Outbox:
    """For connections and sessions that block. Has no state: make one wherever it is needed."""

    def publish(
        self,
        connection: Any,
        topic: str,
        value: Content,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        deliver_at: datetime | float | None = None,
        message_id: str | None = None,
    ) -> str:
        """Returns the id of the message: `message_id`, or a new one.

        Messages with one key are sent in the order of publishing. `deliver_at` is a time with a time zone, or
        seconds since 1970; the message is not sent before. Raises BadMessage, UnknownConnection and
        NoTransaction.
        """
        id = str(uuid.uuid4()) if message_id is None else message_id
        run(connection, _insert(connection, id, topic, value, key, headers, deliver_at))
        return id


class AsyncOutbox:
    """The same for asyncio."""

    async def publish(
        self,
        connection: Any,
        topic: str,
        value: Content,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        deliver_at: datetime | float | None = None,
        message_id: str | None = None,
    ) -> str:
        """See Outbox.publish."""
        id = str(uuid.uuid4()) if message_id is None else message_id
        await run_async(connection, _insert(connection, id, topic, value, key, headers, deliver_at))
        return id


def shard_of(key: bytes | None) -> int:
    """Part of the format. Messages without a key have no order, and go anywhere."""
    return secrets.randbelow(SHARDS) if key is None else zlib.crc32(key) % SHARDS


def _insert(
    connection: Any,
    id: str,
    topic: str,
    value: Content,
    key: bytes | str | None,
    headers: Headers,
    deliver_at: datetime | float | None,
) -> Statement:
    if not 0 < len(id) <= LONGEST_ID:
        raise BadMessage(f"the id of a message has 1 to {LONGEST_ID} characters, not {len(id)}")
    try:
        check_topic_name(topic)
    except InvalidTopicName as error:
        raise BadMessage(f"the message cannot be sent: {error}") from None
    encoded_key = key.encode() if isinstance(key, str) else key
    text = (
        "INSERT INTO posthouse_outbox "
        "(message_id, shard, topic, message_key, value, headers, deliver_at, created_at) "
        f"VALUES (?, ?, ?, ?, ?, ?, ?, {now_ms(dialect_of(connection))})"
    )
    values = (
        id,
        shard_of(encoded_key),
        topic,
        encoded_key,
        encoded(value),
        _encoded_headers(headers),
        _milliseconds(deliver_at),
    )
    return Statement(text, values)


def _encoded_headers(headers: Headers) -> str:
    """Text as it is, because people look at the table; bytes as {"base64": …}."""
    pairs = [[name, _shown(value)] for name, value in checked_headers(headers)]
    return json.dumps(pairs, ensure_ascii=False)


def _shown(value: bytes | str | None) -> object:
    return {"base64": b64encode(value).decode()} if isinstance(value, bytes) else value


def _milliseconds(at: datetime | float | None) -> int | None:
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise BadMessage("deliver_at has no time zone; give it one, for example with astimezone()")
        at = at.timestamp()
    if not 0 <= at < time.time() + 1e11:
        raise BadMessage(f"deliver_at is {at}: seconds since 1970, or a datetime, are wanted")
    return int(at * 1000)
