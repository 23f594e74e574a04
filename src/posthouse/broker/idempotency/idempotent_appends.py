"""Appends with an idempotency key: once, however often they are asked for.

All batches of a request are one commit with the entry of its key. Nothing is looked up before: storage
decides in the commit, so two requests at the same time, on one broker or on two, end as one, and a request
whose answer was lost is answered with the offsets of the first one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.idempotency.allowance import KeyAllowance
from posthouse.broker.idempotency.key_log import KeyLog, entry
from posthouse.broker.idempotency.keyed_producer import (
    MOST_PARTITIONS,
    IdempotencyKey,
    KeyedProducer,
    key_hash,
    keyed_producer,
)
from posthouse.broker.log_writer import LogWriter
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    IdempotencyKeyReused,
    InvalidPartitions,
    OutOfOrderSequence,
    ProducerFenced,
    TooManyKeys,
)
from posthouse.model.topics import Topic
from posthouse.storage.outcomes import OperationRefused

MakeBatches: TypeAlias = Callable[[Topic, KeyedProducer], Sequence[Produced]]
"""The batches of a request, one for each partition, with the numbers of this producer in their headers, as if
the topic had as many partitions as the producer says. The same request has the same records for the same
partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedAppend:
    batches: Sequence[Produced]
    """What was asked for, batch by batch, also if it was there before."""
    appended: Sequence[Appended]
    is_repeated: bool
    """Nothing was appended: an earlier request with this key has."""


class IdempotentAppends:
    """Owned by the event loop."""

    def __init__(self, log: KeyLog, writer: LogWriter, clock: Clock, allowance: KeyAllowance) -> None:
        self._log = log
        self._writer = writer
        self._clock = clock
        self._allowance = allowance
        self._has_counted = False
        self.repeated = 0
        self.refused = 0

    @property
    def remembered(self) -> int:
        return self._allowance.count

    async def append(
        self, topic: Topic, key: IdempotencyKey, fingerprint: bytes, make: MakeBatches
    ) -> KeyedAppend:
        """All batches or none. Raises IdempotencyKeyReused if the key was used for another request,
        TooManyKeys, and what is wrong with the batches."""
        try:
            done = await self._append_once(topic, key, fingerprint, make)
        except (IdempotencyKeyReused, TooManyKeys):
            self.refused += 1
            raise
        self.repeated += done.is_repeated
        return done

    async def _append_once(
        self, topic: Topic, key: IdempotencyKey, fingerprint: bytes, make: MakeBatches
    ) -> KeyedAppend:
        if topic.partitions > MOST_PARTITIONS:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {topic.partitions} partitions; idempotency keys are for topics "
                f"with at most {MOST_PARTITIONS}"
            )
        await self._count_remembered()
        producer = keyed_producer(topic.id, key, fingerprint, topic.partitions)
        try:
            return await self._append(topic, key, fingerprint, producer, make)
        except OperationRefused as refused:
            if not isinstance(refused.reason, OutOfOrderSequence | ProducerFenced):
                raise refused.reason from None
        topic = await self._log.current(topic)
        earlier = await self._before_growth(topic, producer)
        if earlier is None:
            raise _reused(key)
        try:
            return await self._append(topic, key, fingerprint, earlier, make)
        except OperationRefused as refused:
            if not isinstance(refused.reason, OutOfOrderSequence | ProducerFenced):
                raise refused.reason from None
            raise _reused(key) from None

    async def _append(
        self,
        topic: Topic,
        key: IdempotencyKey,
        fingerprint: bytes,
        producer: KeyedProducer,
        make: MakeBatches,
    ) -> KeyedAppend:
        hashed = key_hash(topic.id, key)
        used = entry(await self._log.topic(), producer, hashed, fingerprint, self._clock.now_ms())
        batches = make(topic, producer)
        if self._allowance.is_full and await self._log.known(producer) is None:
            self._allowance.check()
        appended, [outcome] = await self._writer.append_all(batches, [used])
        is_repeated = used.base_offset < 0
        if is_repeated:
            known = await self._log.fingerprint_at(producer, outcome.base_offset, hashed)
            if known is not None and known != fingerprint:
                raise _reused(key)
        else:
            self._allowance.add()
        return KeyedAppend(batches=batches, appended=appended, is_repeated=is_repeated)

    async def _before_growth(self, topic: Topic, producer: KeyedProducer) -> KeyedProducer | None:
        """The producer of the same request from when the topic had another number of partitions; None if the
        key was used for another request."""
        known = await self._log.known(producer)
        if known is None or known.epoch == producer.epoch or not known.batches:
            return None
        if known.batches[-1].first_sequence != producer.sequence or known.epoch > topic.partitions:
            return None
        return KeyedProducer(id=producer.id, partitions=known.epoch, sequence=producer.sequence)

    async def _count_remembered(self) -> None:
        if not self._has_counted:
            await self._log.topic()
            if not self._has_counted:
                self._has_counted = True
                self._allowance.add(self._log.remembered())


def _reused(key: IdempotencyKey) -> IdempotencyKeyReused:
    return IdempotencyKeyReused(
        f"the idempotency key {key.text[:100]!r} was used for another request to this topic; a key belongs "
        "to one request, and to what that one sends"
    )
