"""A shard of an outbox in a plain Kafka: a transactional producer, and the number of its last batch.

The number is an offset that the group of the shard's name commits for `posthouse.outbox`, partition 0, in the
transaction of the batch. Opening a shard fences whoever had it before, and ends what that one has begun: so
the number that is found then is that of all messages that consumers will ever see.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from posthouse.client.closable import Closable
from posthouse.client.errors import BrokerSilent, ClientError
from posthouse.consistency.kafka_errors import client_error
from posthouse.consistency.message_ids import HEADER
from posthouse.consistency.outbox_table import OutboxMessage

log = logging.getLogger(__name__)

PROGRESS_TOPIC: Final = "posthouse.outbox"
_TRANSACTION_MS: Final = 60_000
_TOPIC_MS: Final = 5000
"""Until a topic that Kafka does not know is missing, and not just new."""
_LARGEST: Final = 64 * 1024 * 1024
"""The topic decides, not the client."""
_RECORD_BATCH_BYTES: Final = 16 * 1024
"""Topics limit the sizes of batches: no message is to be refused because of those before it."""
_NONE: Final = 0
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class KafkaShard(Closable):
    """Belongs to one thread. After an error other than one about messages it is to be closed."""

    def __init__(self, name: str, properties: Mapping[str, str], *, patience: float) -> None:
        """Raises ClientError."""
        self._name = name
        self._patience = patience
        self._deliveries = _Deliveries()
        self._consumer = Consumer({**properties, "group.id": name, "enable.auto.commit": False}, logger=log)
        self._producer = Producer(
            {
                **properties,
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "message.timeout.ms": int(self._patience * 1000),
                "message.max.bytes": _LARGEST,
                "batch.size": _RECORD_BATCH_BYTES,
                "partitioner": "murmur2_random",  # as Kafka's own clients
                "topic.metadata.propagation.max.ms": _TOPIC_MS,
            },
            logger=log,
        )
        try:
            self._asked(lambda: self._producer.init_transactions(self._patience))
            self.last = self._committed()
            """The number of the last batch."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """What is open is aborted when the shard is opened again."""
        self._producer.purge()
        # Its own `close` would wait for a Kafka that may be gone; without it nothing is waited for.
        del self._producer
        self._consumer.close()

    def write(self, number: int, messages: Sequence[OutboxMessage], *, alone: bool) -> None:
        """All messages and the number, or nothing. Raises ClientError."""
        self._begin()
        self._send(messages, alone=alone)
        offsets = [TopicPartition(PROGRESS_TOPIC, 0, number)]
        group = self._consumer.consumer_group_metadata()
        self._asked(lambda: self._producer.send_offsets_to_transaction(offsets, group, self._patience))
        self._asked(lambda: self._producer.commit_transaction(self._patience))
        self.last = number

    def attempt(self, messages: Sequence[OutboxMessage]) -> None:
        """Send them, each in a batch of its own, and abort that. Raises ClientError."""
        self._begin()
        self._send(messages, alone=True)
        self.abort()

    def abort(self) -> None:
        self._asked(lambda: self._producer.abort_transaction(self._patience))

    def _begin(self) -> None:
        self._deliveries = _Deliveries()
        self._asked(self._producer.begin_transaction)

    def _send(self, messages: Sequence[OutboxMessage], *, alone: bool) -> None:
        for message in messages:
            self._produce(message)
            if alone:
                self._flush()
        self._flush()

    def _produce(self, message: OutboxMessage) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            (name, value) for name, value in message.headers if name != HEADER
        ]
        headers.append((HEADER, message.id.encode()))
        told = partial(self._deliveries.told, message.topic)
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._producer.produce(
                    message.topic, message.value, message.key, headers=headers, on_delivery=told
                )
                break
            except BufferError:  # it has more than it may keep
                self._served(lambda: self._producer.poll(0.1))
                if time.monotonic() > deadline:
                    raise BrokerSilent(f"Kafka takes no messages of {self._name!r}") from None
            except KafkaException as error:
                self._served(lambda: self._producer.poll(0))
                raise self._deliveries.failure or client_error(error.args[0], message.topic) from None

    def _flush(self) -> None:
        left = self._served(lambda: self._producer.flush(self._patience))
        if self._deliveries.failure is not None:
            raise self._deliveries.failure
        if left:
            raise BrokerSilent(f"Kafka did not take the messages of {self._name!r} in time")

    def _committed(self) -> int:
        place = TopicPartition(PROGRESS_TOPIC, 0)
        found: list[TopicPartition] = []
        self._asked(lambda: found.extend(self._consumer.committed([place], self._patience)))
        [progress] = found
        if progress.error is not None:
            raise client_error(progress.error, self._name)
        return max(progress.offset, _NONE)  # -1001 if there is none

    def _asked(self, call: Callable[[], object]) -> None:
        """Again if that helps, for a while. Raises ClientError."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                call()
                return
            except (KafkaException, SystemError) as error:
                reason = _reason(error)
                if not reason.retriable() or time.monotonic() > deadline:
                    raise client_error(reason, self._name) from None
                log.debug("outbox: %s: %s", self._name, reason.str())

    def _served(self, call: Callable[[], int]) -> int:
        """A call that tells of deliveries. Raises ClientError."""
        try:
            return call()
        except (KafkaException, SystemError) as error:
            raise client_error(_reason(error), self._name) from None


class _Deliveries:
    """Of one transaction: those of an earlier one may still be told."""

    def __init__(self) -> None:
        self.failure: ClientError | None = None
        self._is_consequence = False

    def told(self, topic: str, error: KafkaError | None, _: object) -> None:
        # Others are dropped because of the one that is refused, and may be told of before it.
        if error is not None and (self.failure is None or self._is_consequence):
            self.failure = client_error(error, topic)
            self._is_consequence = error.code() in _PURGED


def _reason(error: BaseException) -> KafkaError:
    """A fatal error of librdkafka is raised in the middle of callbacks. Python takes it for an error of
    theirs, or a callback has removed it: then only this is known, that the producer is of no use any more. To
    open the shard again is right in any case."""
    cause = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(cause, KafkaException):
        return KafkaError(KafkaError._FENCED, "its producer has ended")
    reason: KafkaError = cause.args[0]
    return reason
