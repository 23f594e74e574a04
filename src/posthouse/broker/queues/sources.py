"""Which exchange or queue gets the records of a topic, and the references for them."""

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass

from posthouse.broker.queues.left_referrals import LeftReferrals, Referral, stored_referral
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.referrals import Referrals
from posthouse.broker.queues.transaction_batches import transaction_batches
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Router
from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import Scope
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append
from posthouse.storage.producers import NOT_OPEN
from posthouse.storage.spaces import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the records of one topic are published to."""

    namespace: str
    router: Router[LogQueue]
    target: Exchange | LogQueue


class NamespaceSources:
    """Of one namespace: kept apart while it is loaded, and when another broker serves it."""

    def __init__(self, by_topic: dict[str, Source]) -> None:
        """`by_topic` has those of all namespaces that are served."""
        self._own: dict[str, Source] = {}
        self._served: dict[str, Source] | None = None
        self._by_topic = by_topic

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def get(self, topic: str) -> Source | None:
        return self._own.get(topic)

    def set(self, topic: str, source: Source) -> None:
        self._own[topic] = source
        if self._served is not None:
            self._served[topic] = source

    def remove(self, topic: str) -> None:
        self._own.pop(topic, None)
        if self._served is not None:
            self._served.pop(topic, None)

    def serve(self) -> None:
        self._served = self._by_topic
        self._served |= self._own

    def close(self) -> None:
        """The namespace is not served any more."""
        if self._served is not None:
            for topic in self._own:
                self._served.pop(topic, None)
        self._served = None


class Sources:
    """Of all namespaces that this broker serves. Owned by the event loop."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self.by_topic: dict[str, Source] = {}
        """By the name of the topic. Topics that feed no exchange or queue are not in it."""
        self._declaring: set[str] = set()
        self._is_alone = storage.shared_state is None
        self._served: dict[Scope, object] = {}
        """Scopes of namespaces that this broker serves, each with a mark of its time there."""

    def of_namespace(self) -> NamespaceSources:
        return NamespaceSources(self.by_topic)

    def serve(self, scope: Scope) -> None:
        self._served[scope] = object()

    def leave(self, scope: Scope) -> None:
        self._served.pop(scope, None)

    def serves(self, scope: Scope | None) -> bool:
        """Whether this broker knows all that records of such a topic lead to."""
        return scope is None or self._is_alone or scope in self._served

    def time_of(self, partition: PartitionId) -> object | None:
        """The same for a partition. If it is the same object later, it was so all the time; None if not."""
        if self._is_alone:
            return self
        topic = self._storage.topics.get(partition.topic)
        return None if topic is None or topic.scope is None else self._served.get(topic.scope)

    @contextmanager
    def declaring(self, topic: str) -> Iterator[None]:
        """The topic will be in `by_topic`: its name stays announced."""
        self._declaring.add(topic)
        try:
            yield
        finally:
            self._declaring.discard(topic)

    def has(self, topic: str) -> bool:
        """Whether a topic of this name feeds an exchange or queue, or will as soon as that is declared."""
        return topic in self.by_topic or topic in self._declaring

    def refer(self, appends: Sequence[tuple[Topic, Append]]) -> Referrals | None:
        """References for the queues that get records of these appends."""
        referrals: Referrals | None = None
        for topic, append in appends:
            source = self.by_topic.get(topic.name)
            if source is None or append.header.is_transactional:
                continue
            referrals = referrals or Referrals(self._clock.now_ms())
            referrals.add(source.router, source.target, append)
        return referrals

    async def refer_committed(
        self, written: Sequence[tuple[PartitionId, int]]
    ) -> Referrals | LeftReferrals | None:
        """The same for records of transactions, in the moment in which they become visible. A broker that
        does not know all of these queues leaves it to those that do."""
        routed = [each for each in written if self._may_route(each[0])]
        if not routed:
            return None
        await self._storage.barrier()  # records of the transaction may still be on their way to the disk
        await self._storage.refresh([partition for partition, _ in routed], with_producers=True)
        opened = [
            Referral(partition=partition, producer_id=producer, first=first)
            for partition, producer in routed
            if (first := self._open_since(partition, producer)) != NOT_OPEN
        ]
        times = {partition: self.time_of(partition) for partition, _ in routed}
        if None not in times.values() and not await self._is_behind({partition for partition, _ in routed}):
            referrals = Referrals(self._clock.now_ms())
            for referral in opened:
                await self.add_records(referral, referrals)
            if all(self.time_of(partition) is time for partition, time in times.items()):
                return referrals
        return LeftReferrals([partition for partition, _ in routed], opened)

    async def _is_behind(self, partitions: Set[PartitionId]) -> bool:
        """Whether an earlier transaction in one of the partitions is not referred to yet, which must not be
        overtaken: it may be of the same producer, whose id was with another broker."""
        shared = self._storage.shared_state
        if shared is None:
            return False
        pending = await shared.of_space(Space.REFERRALS)
        return any(stored_referral(each).partition in partitions for each in pending)

    async def add_records(self, referral: Referral, referrals: Referrals) -> None:
        """The records of the transaction, for the queues that get them now. Its log must be refreshed."""
        partition = referral.partition
        async for append in transaction_batches(
            self._storage, partition, referral.producer_id, referral.first
        ):
            source = self._of(partition)
            if source is not None:
                referrals.add(source.router, source.target, append)

    def feeds_queues(self, partition: PartitionId) -> bool:
        """As far as this broker serves the namespaces."""
        return self._of(partition) is not None

    def _may_route(self, partition: PartitionId) -> bool:
        if self._is_alone:
            return self.feeds_queues(partition)
        topic = self._storage.topics.get(partition.topic)
        return topic is not None and topic.scope is not None

    def _open_since(self, partition: PartitionId, producer_id: int) -> int:
        producer = self._storage.producers(partition).get(producer_id)
        return NOT_OPEN if producer is None else producer.open_since

    def _of(self, partition: PartitionId) -> Source | None:
        topic = self._storage.topics.get(partition.topic)
        return None if topic is None else self.by_topic.get(topic.name)
