"""The loop of a consumer: each message in a transaction with its id, and then the offsets.

Offsets are committed behind the changes, so a message may come again but is never left out. The inbox makes
that harmless: which offsets were committed decides only how much is read again.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import Message as KafkaMessage

from examples.bank.databases import Connection, ServiceDatabase
from posthouse.consistency import Inbox

log = logging.getLogger(__name__)

Apply: TypeAlias = Callable[[Connection, bytes], None]

_BATCH: Final = 100
_BATCH_SECONDS: Final = 0.05


class Deduplication(Protocol):
    """What an inbox does for a consumer."""

    def once(self, connection: Any, message: Any) -> AbstractContextManager[bool]: ...


def consume(
    database_url: str,
    bootstrap: str,
    topic: str,
    name: str,
    apply: Apply,
    *,
    inbox: Deduplication | None = None,
) -> None:
    """For ever: `apply` the messages of a topic to a database, each once."""
    database = ServiceDatabase(database_url)
    consumer = _consumer(bootstrap, name)
    consumer.subscribe([topic])
    inbox = inbox or Inbox(name)
    while True:
        messages = consumer.consume(_BATCH, _BATCH_SECONDS)
        for message in messages:
            if (error := message.error()) is not None:
                log.warning("%s: %s", name, error)  # it goes on by itself, except after fatal errors
                if error.fatal():
                    raise KafkaException(error)
                continue
            _handle(database, inbox, message, apply)
        if messages:
            consumer.commit(asynchronous=True)


def _handle(database: ServiceDatabase, inbox: Deduplication, message: KafkaMessage, apply: Apply) -> None:
    value = message.value()
    assert value is not None, "the services send no tombstones"

    def work(connection: Connection) -> None:
        with inbox.once(connection, message) as first:
            if first:
                apply(connection, value)

    database.do(work)


def _consumer(bootstrap: str, name: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            # A consumer that starts again takes the place of the one that died, at once.
            "group.instance.id": f"{name}-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
        }
    )
