"""The broker that serves queues refers to the records of transactions that other brokers have committed.

    H   the holder of a transactional id: markers and a referral, in one commit
    S   the broker that serves the namespace: references to the records, without the referral, in one commit

S looks for referrals when it has taken a scope of namespaces, when it hears that another broker has written
to a topic that feeds queues, and every second. A crash of H or S between the two commits leaves a referral
for the next look; what is referred to twice would have to be removed twice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from posthouse.broker.queues.background import Background
from posthouse.broker.queues.left_referrals import Referral, stored_referral
from posthouse.broker.queues.referrals import Referrals
from posthouse.broker.queues.sources import Sources
from posthouse.model.errors import CorruptBatch, DataDamaged, NotLeader, UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)


class PendingReferrals:
    """Owned by the event loop."""

    def __init__(
        self, storage: Storage, sources: Sources, background: Background, now_ms: Callable[[], int]
    ) -> None:
        self._storage = storage
        self._sources = sources
        self._background = background
        self._now_ms = now_ms
        self._referring = asyncio.Lock()
        """One at a time: a referral must not be read again before its removal is durable."""
        self._look: asyncio.Task[None] | None = None
        self._must_look_again = False
        if storage.shared_state is not None:
            storage.subscribe_to_others(self._arrived)

    async def load(self) -> None:
        """In a broker that is alone: what is left can only come from a cluster whose data it has got. Raises
        Unavailable."""
        await self._refer_all(self._storage.take_state(Space.REFERRALS))

    async def refer(self) -> None:
        """When it returns, queues that are served here have the records of all transactions that were
        committed before the call. Raises Unavailable, and NotLeader if one of their scopes was given up
        meanwhile."""
        shared = self._storage.shared_state
        if shared is not None and self._sources.by_topic:
            async with self._referring:
                await self._refer_all(await shared.of_space(Space.REFERRALS))

    async def _refer_all(self, stored: Iterable[bytes]) -> None:
        for each in sorted(map(stored_referral, stored), key=lambda referral: referral.first):
            await self._refer(each)

    async def _refer(self, referral: Referral) -> None:
        referrals = Referrals(self._now_ms())
        if referral.partition.topic not in self._storage.topics:
            await self._storage.refresh_definitions()
        is_deleted = referral.partition.topic not in self._storage.topics
        time = self._sources.time_of(referral.partition)
        if time is None and not is_deleted:
            return  # the broker that serves its queues does it
        try:
            await self._storage.refresh([referral.partition])
            await self._sources.add_records(referral, referrals)
        except UnknownPartition:
            log.debug("%s is deleted: queues get nothing of it", referral.partition)
        except (CorruptBatch, DataDamaged) as error:
            log.error(
                "%s: records from offset %d on, of a committed transaction, do not reach queues: %s",
                referral.partition,
                referral.first,
                error,
            )
        if self._sources.time_of(referral.partition) is not time:
            raise NotLeader(f"this broker does not serve the queues of {referral.partition} any more")
        await self._storage.commit([*referrals.operations(), referral.removal()])
        referrals.durable()

    def _arrived(self, partition: PartitionId, size: int) -> None:
        if self._sources.feeds_queues(partition):
            self.look_soon()

    def look_soon(self) -> None:
        """Nobody waits for it: it may take long, and the records may be in an object store that is away."""
        if self._look is not None:
            self._must_look_again = True
        else:
            self._look = self._background.start(self._look_around(), "transactions of other brokers")

    async def _look_around(self) -> None:
        try:
            self._must_look_again = True
            while self._must_look_again:
                self._must_look_again = False
                await self.refer()
        except NotLeader:
            log.debug("the next holder of the queues refers to transactions of other brokers")
        finally:
            self._look = None
