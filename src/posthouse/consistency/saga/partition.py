"""The sagas of one partition: their states in memory, and changes of them in the log, exactly once.

A change is one transaction: the state, the next events, what the step has sent, and the offset of the event
that it answers, which the broker stores as a number in the same commit (`client.together`). Beginning fences
runners that have begun before, and the number that is found then says whether this one has missed something:
then it changes nothing, and has to load again. So of two runners that believe to have a partition one is
refused.
"""

import logging
import secrets
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from posthouse.client.backoff import Backoff
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import BadArgument, BrokerUnreachable, ProducerFenced, TopicNotReady
from posthouse.client.positions import Start, first_offsets
from posthouse.client.reading import Reading
from posthouse.client.together import commit_together, fence_sequence
from posthouse.client.topic_partitions import TopicPartition
from posthouse.client.transactional_producer import TransactionalProducer
from posthouse.consistency.errors import Superseded
from posthouse.consistency.saga.definition import Saga, Sent
from posthouse.consistency.saga.machine import Change
from posthouse.consistency.saga.state import SagaState
from posthouse.model.errors import PosthouseError
from posthouse.records.builder import BatchBuilder
from posthouse.records.partitioner import partition_of

log = logging.getLogger(__name__)

_TRANSACTION_MS: Final = 60_000
_PATIENCE: Final = 10.0


class SagaPartition:
    """Belongs to one thread."""

    def __init__(
        self, cluster: Cluster, saga: Saga, events: TopicInfo, states: TopicInfo, index: int
    ) -> None:
        """Raises ClientError."""
        self._cluster = cluster
        # The number never expires: that of a topic of this name that was deleted must not count.
        self._name = f"saga-{saga.name}.{events.id.hex()}.{index}"
        self._events = events
        self._states = states
        self._index = index
        self._topics: dict[str, TopicInfo] = {events.name: events, states.name: states}
        self._producer = TransactionalProducer(
            cluster, f"{self._name}/0", transaction_timeout_ms=_TRANSACTION_MS, patience=_PATIENCE
        )
        # Whoever had the partition before can change nothing from here on.
        self._producer.begin()
        self._done = self._number()
        self._unfinished: dict[str, SagaState] = {}
        self._finished: set[str] = set()
        """All that have ended: they are not to be started again."""
        self._load()

    def close(self) -> None:
        self._producer.close()

    def is_done(self, offset: int) -> bool:
        """Whether the event has changed something, or a later one has."""
        return offset < self._done

    def check(self) -> None:
        """Raises Superseded if another runner has changed something since."""
        if self._number() != self._done:
            raise Superseded(f"another runner has changed {self._name!r}")

    def is_finished(self, id: str) -> bool:
        return id in self._finished

    def state(self, id: str) -> SagaState | None:
        """None also for one that is finished."""
        return self._unfinished.get(id)

    def commit(self, offset: int, change: Change) -> None:
        """Raises ClientError: then it may or may not be noted; and Superseded if another runner has changed
        something, or may have. This object is of no use any more then."""
        try:
            member = self._producer.begin()
            self.check()
            self._write_all(change)
            self._producer.flush()
            committed = commit_together(self._cluster, self._name, offset + 1, [member], patience=_PATIENCE)
        except ProducerFenced as error:
            raise Superseded(f"another runner has {self._name!r}: {error}") from None
        # Also if the number is ours: another runner may have come to another change for the same event.
        if not committed.is_new:
            raise Superseded(f"another runner has changed {self._name!r}")
        self._done = offset + 1
        self._note(change.state)

    def _number(self) -> int:
        """One more than the offset of the last event that has changed something."""
        return fence_sequence(self._cluster, self._name, patience=_PATIENCE) or 0

    def _load(self) -> None:
        start = first_offsets(self._cluster, self._states, [self._index], Start.beginning())
        place = TopicPartition(self._states.name, self._index)
        for fetched in Reading(self._cluster, [self._states], {place: start[self._index]}, follow=False):
            for message in fetched.messages():
                if message.value is not None:
                    self._note_stored(message.offset, message.value)
                elif message.key is not None:
                    self._forget(message.key.decode(errors="replace"))

    def _note_stored(self, offset: int, value: bytes) -> None:
        try:
            self._note(msgspec.json.decode(value, type=SagaState))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning(
                "topic %s, partition %d: no state of a saga at offset %d: %s",
                self._states.name,
                self._index,
                offset,
                error,
            )

    def _note(self, state: SagaState) -> None:
        if state.status.is_final:
            self._unfinished.pop(state.id, None)
            self._finished.add(state.id)
        else:
            self._unfinished[state.id] = state

    def _forget(self, id: str) -> None:
        """Compaction has not removed the states before a tombstone yet."""
        self._unfinished.pop(id, None)
        self._finished.discard(id)

    def _write_all(self, change: Change) -> None:
        """Raises BadArgument if something of it cannot be a record."""
        try:
            id = change.state.id.encode()
            self._write(self._states, self._index, [_sent(id, change.state)])
            self._write(self._events, self._index, [_sent(id, event) for event in change.events])
            for sent in change.sent:
                info = self._topic(sent.topic)
                partition = (
                    secrets.randbelow(info.partitions)
                    if sent.key is None
                    else partition_of(sent.key, info.partitions)
                )
                self._write(info, partition, [sent])
        except (PosthouseError, TypeError, ValueError) as error:
            raise BadArgument(f"it cannot be written: {error}") from None

    def _write(self, info: TopicInfo, partition: int, records: Sequence[Sent]) -> None:
        if not records:
            return
        builder = BatchBuilder(
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._producer.next_sequence(info, partition),
            transactional=True,
        )
        now = time.time_ns() // 1_000_000
        for record in records:
            builder.add(record.key, record.value, record.headers, now)
        self._producer.send(info, partition, builder.build(), builder.count)

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


def _sent(key: bytes, content: msgspec.Struct) -> Sent:
    return Sent(topic="", key=key, value=msgspec.json.encode(content), headers=[])
