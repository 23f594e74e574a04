"""A plain Kafka as the place that messages go to: exactly once for consumers that read what is committed.

Each shard of the outbox is a transactional id there (`kafka_shard`). It stays open between batches. If
another relay has opened the shard meanwhile, this one is fenced: it opens the shard again, and looks how far
that is.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from posthouse.client.closable import Closable
from posthouse.client.errors import BadArgument, ClientError, ProducerFenced
from posthouse.consistency.errors import BrokerAhead
from posthouse.consistency.kafka_errors import client_error
from posthouse.consistency.kafka_shard import PROGRESS_TOPIC, KafkaShard
from posthouse.consistency.outbox_table import Batch, OutboxMessage
from posthouse.consistency.refusals import ahead, is_about_messages

log = logging.getLogger(__name__)

PATIENCE: Final = 30.0


class KafkaTarget(Closable):
    """Belongs to one thread."""

    def __init__(self, properties: Mapping[str, str], *, patience: float = PATIENCE) -> None:
        """Those of librdkafka: addresses, TLS and logins. Connects when first used. Raises BadArgument."""
        try:
            self._admin = AdminClient(dict(properties), logger=log)
        except KafkaException as error:
            raise BadArgument(f"the options of the target cannot be used: {error.args[0].str()}") from None
        self._properties = properties
        self._patience = patience
        self._shards: dict[str, KafkaShard] = {}
        self._is_ready = False

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    def last_number(self, name: str) -> int:
        return self._shard(name).last

    def write(self, name: str, batch: Batch, *, alone: bool = False) -> None:
        """The messages are there, once, for consumers that read what is committed. Raises ClientError, and
        BrokerAhead if nothing was written because there is another batch of this number, or later ones."""
        was_open = name in self._shards
        try:
            self._write(name, batch, alone=alone)
        except ProducerFenced:
            if not was_open:
                raise
            self._write(name, batch, alone=alone)  # the shard is opened again

    def refusal(self, name: str, messages: Sequence[OutboxMessage]) -> ClientError | None:
        """Found out in a transaction that is aborted."""
        shard = self._shard(name)
        try:
            shard.attempt(messages)
        except ClientError as error:
            self._end(name, shard, error)
            if not is_about_messages(error):
                raise
            return error
        return None

    def _write(self, name: str, batch: Batch, *, alone: bool) -> None:
        shard = self._shard(name)
        last = shard.last
        if last > batch.number or (last == batch.number and batch.is_new):
            self._forget(name, shard)
            raise ahead(name, last)
        if last == batch.number:
            return
        try:
            shard.write(batch.number, batch.messages, alone=alone)
        except (ClientError, BrokerAhead) as error:
            self._end(name, shard, error)
            raise

    def _end(self, name: str, shard: KafkaShard, error: Exception) -> None:
        """Of the transaction. What became of it is asked for when the shard is opened again."""
        if isinstance(error, ClientError) and is_about_messages(error):
            try:
                shard.abort()
            except ClientError as another:  # opening it again aborts, too
                log.debug("outbox: %s: %s", name, another)
        # librdkafka tells of messages of such a transaction in the next one: it gets a new producer.
        self._forget(name, shard)

    def _forget(self, name: str, shard: KafkaShard) -> None:
        del self._shards[name]
        shard.close()

    def _shard(self, name: str) -> KafkaShard:
        if not self._is_ready:
            self._create_progress_topic()
            self._is_ready = True
        if name not in self._shards:
            self._shards[name] = KafkaShard(name, self._properties, patience=self._patience)
        return self._shards[name]

    def _create_progress_topic(self) -> None:
        """Kafka takes offsets of topics only that it has."""
        admin = self._admin
        try:
            if PROGRESS_TOPIC in admin.list_topics(timeout=self._patience).topics:
                return
            [created] = admin.create_topics([NewTopic(PROGRESS_TOPIC, 1)]).values()
            created.result(self._patience)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise client_error(reason, PROGRESS_TOPIC) from None
