"""Which exchange or queue gets the records of a topic, and the references for them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from posthouse.broker.queues.left_referrals import LeftReferrals, Referral
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.referrals import Referrals
from posthouse.broker.queues.transaction_batches import transaction_batches
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Router
from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append
from posthouse.storage.producers import NOT_OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the records of one topic are published to."""

    namespace: str
    router: Router[LogQueue]
    target: Exchange | LogQueue


class Sources:
    """Of all namespaces, which keep `by_topic` up to date. Owned by the event loop."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self.by_topic: dict[str, Source] = {}
        """By the name of the topic. Topics that feed no exchange or queue are not in it."""
        self._declaring: set[str] = set()
        self.is_loaded = False
        """Whether all namespaces are: in a cluster, only in the coordinator."""

    def unload(self) -> None:
        """Not cleared: what still uses the namespaces of before must not change what comes next."""
        self.is_loaded = False
        self.by_topic = {}

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
        does not know the queues leaves it to the coordinator."""
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
        if self.is_loaded:
            known, referrals = self.by_topic, Referrals(self._clock.now_ms())
            for referral in opened:
                await self.add_records(referral, referrals)
            if self.is_loaded and self.by_topic is known:
                return referrals
        return LeftReferrals([partition for partition, _ in routed], opened)

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
        """As far as the namespaces are loaded."""
        return self._of(partition) is not None

    def _may_route(self, partition: PartitionId) -> bool:
        if self.is_loaded:
            return self.feeds_queues(partition)
        topic = self._storage.topics.get(partition.topic)
        return topic is not None and topic.is_coordinated

    def _open_since(self, partition: PartitionId, producer_id: int) -> int:
        producer = self._storage.producers(partition).get(producer_id)
        return NOT_OPEN if producer is None else producer.open_since

    def _of(self, partition: PartitionId) -> Source | None:
        topic = self._storage.topics.get(partition.topic)
        return None if topic is None else self.by_topic.get(topic.name)
