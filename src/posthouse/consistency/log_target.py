"""Posthouse as the place that messages go to: exactly once.

A batch is one transaction, which the broker commits in one step with the number of the batch
(`client.together`). A batch whose number was committed before is not written again, whatever has crashed in
between, and whichever relay sends it: beginning fences relays that have begun before.
"""

import time
from collections.abc import Sequence
from typing import Final

from posthouse.client.backoff import Backoff
from posthouse.client.closable import Closable
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientError,
    TopicNotReady,
)
from posthouse.client.security import OPEN, Security
from posthouse.client.together import commit_together, fence_sequence
from posthouse.client.transactional_producer import TransactionalProducer
from posthouse.consistency.errors import BrokerAhead
from posthouse.consistency.message_ids import HEADER
from posthouse.consistency.outbox_table import Batch, OutboxMessage
from posthouse.consistency.refusals import ahead, is_about_messages
from posthouse.model.errors import PosthouseError
from posthouse.records.builder import BatchBuilder
from posthouse.records.partitioner import partition_of

_TRANSACTION_MS: Final = 60_000
_TIMEOUT: Final = 30.0
_PATIENCE: Final = 10.0
"""Then the relay waits, and says why."""
_RECORD_BATCH_BYTES: Final = 16 * 1024
"""A message that would make a record batch larger begins another one: topics limit the sizes of batches, and
no message is to be refused because of those before it."""
_RECORD_OVERHEAD: Final = 40
_TOPICS_SECONDS: Final = 30.0
"""Then topics are looked up again: partitions may have been added. Relays that know different numbers of them
put messages of one key into different partitions."""


class LogTarget(Closable):
    """Belongs to one thread."""

    def __init__(self, bootstrap: str, *, security: Security = OPEN) -> None:
        self._cluster = Cluster(bootstrap, timeout=_TIMEOUT, security=security)
        self._producers: dict[str, TransactionalProducer] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._topics_until = 0.0

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close()
        self._producers.clear()
        self._cluster.close()

    def last_number(self, name: str) -> int:
        """Of the batches that the broker has; 0 if it has none. Raises ClientError."""
        return fence_sequence(self._cluster, name, patience=_PATIENCE) or 0

    def write(self, name: str, batch: Batch, *, alone: bool = False) -> None:
        """The messages are in the log, once, when this returns; `alone`: each in a record batch of its own.
        Raises ClientError (see is_about_messages), and BrokerAhead if nothing was written because the broker
        has another batch of this number, or later ones."""
        producer = self._producers.get(name) or TransactionalProducer(
            self._cluster, f"{name}/0", transaction_timeout_ms=_TRANSACTION_MS, patience=_PATIENCE
        )
        self._producers[name] = producer
        try:
            member = producer.begin()
            last = self.last_number(name)
            if last > batch.number or (last == batch.number and batch.is_new):
                raise ahead(name, last)
            if last < batch.number:
                self._send(producer, batch.messages, alone=alone)
                commit_together(self._cluster, name, batch.number, [member], patience=_PATIENCE)
        except (ClientError, BrokerAhead):
            self._give_up(name, producer)
            raise

    def refusal(self, name: str, messages: Sequence[OutboxMessage]) -> ClientError | None:
        """Why the broker does not take one of the messages, even if it is alone: found out in a transaction
        that is aborted. Raises ClientError for everything that is not about messages."""
        producer = TransactionalProducer(
            self._cluster, f"{name}/0", transaction_timeout_ms=_TRANSACTION_MS, patience=_PATIENCE
        )
        with producer:
            producer.begin()
            try:
                self._send(producer, messages, alone=True)
            except ClientError as error:
                if not is_about_messages(error):
                    raise
                return error
            finally:
                producer.abort()
        return None

    def _give_up(self, name: str, producer: TransactionalProducer) -> None:
        # What is open is aborted when the name begins again: by this relay, or by the next one.
        del self._producers[name]
        producer.close()
        self._cluster.close()
        self._topics.clear()

    def _send(
        self, producer: TransactionalProducer, messages: Sequence[OutboxMessage], *, alone: bool
    ) -> None:
        self._forget_old_topics()
        open_batches: dict[tuple[str, int], BatchBuilder] = {}
        now = time.time_ns() // 1_000_000
        for message in messages:
            info = self._topic(message.topic)
            partition = _partition(message, info)
            place = (info.name, partition)
            builder = open_batches.get(place)
            if builder is not None and (
                alone or builder.size_estimate + _size(message) > _RECORD_BATCH_BYTES
            ):
                producer.send(info, partition, builder.build(), builder.count)
                builder = None
            if builder is None:
                builder = open_batches[place] = _builder(producer, info, partition)
            try:
                builder.add(message.key, message.value, _headers(message), now)
            except (PosthouseError, TypeError, ValueError, AttributeError) as error:
                # Also what an application has written into the table by itself.
                raise BadArgument(f"the message cannot be sent: {error}") from None
        for (topic, partition), builder in open_batches.items():
            producer.send(self._topic(topic), partition, builder.build(), builder.count)
        producer.flush()

    def _forget_old_topics(self) -> None:
        if time.monotonic() >= self._topics_until:
            self._topics.clear()
            self._topics_until = time.monotonic() + _TOPICS_SECONDS

    def _topic(self, name: str) -> TopicInfo:
        """The broker creates it if it is missing and its settings allow that."""
        info = self._topics.get(name)
        backoff = Backoff(_PATIENCE)
        while info is None:
            try:
                info = self._topics[name] = self._cluster.topic(name, create=True)
            except (BrokerUnreachable, TopicNotReady) as error:
                self._cluster.close()
                backoff.pause(error)
        return info


def _size(message: OutboxMessage) -> int:
    headers = sum(len(str(name)) + len(value or b"") for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers + len(message.id) + _RECORD_OVERHEAD


def _builder(producer: TransactionalProducer, info: TopicInfo, partition: int) -> BatchBuilder:
    return BatchBuilder(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.next_sequence(info, partition),
        transactional=True,
    )


def _partition(message: OutboxMessage, info: TopicInfo) -> int:
    """That of Kafka's own clients for the key."""
    return (
        message.row % info.partitions if message.key is None else partition_of(message.key, info.partitions)
    )


def _headers(message: OutboxMessage) -> list[tuple[str, bytes | None]]:
    others = [(name, value) for name, value in message.headers if name != HEADER]
    return [*others, (HEADER, message.id.encode())]
