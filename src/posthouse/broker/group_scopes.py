"""The groups of the scopes that this broker holds: consumer groups, their offsets, and subscriptions."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from posthouse.broker.groups.groups import Groups
from posthouse.broker.groups.offsets import partition_of
from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.scope_handover import ScopeHandover
from posthouse.broker.subscriptions.subscriptions import Subscriptions
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import GROUPS, Scope
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)


class GroupScopes:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        held: HeldScopes,
        groups: Groups,
        subscriptions: Subscriptions,
        *,
        check_seconds: float,
    ) -> None:
        """`check_seconds` is the interval in which groups expire."""
        self._storage = storage
        self._groups = groups
        self._subscriptions = subscriptions
        self.handover = ScopeHandover(storage, held, GROUPS, load=self._load, unload=self._unload)
        self._expiry = Housekeeping([groups.expire], check_seconds)
        self._forgetting: set[asyncio.Task[None]] = set()

    def load_all(self) -> None:
        """In a broker that is alone."""
        self._groups.load_all()
        self._subscriptions.load_all()

    def start(self) -> None:
        self._subscriptions.start()
        self._expiry.start()

    async def _load(self, scope: Scope, shared: SharedState) -> None:
        await self._groups.loading.load(scope, shared)
        try:
            await self._subscriptions.load(scope, shared)
        except PosthouseError:
            await self._groups.loading.unload(scope)
            raise

    async def _unload(self, scope: Scope) -> None:
        await self._groups.loading.unload(scope)
        await self._subscriptions.unload(scope)
        await self._storage.barrier()

    async def readers_of(self, topics: Sequence[Topic]) -> Callable[[PartitionId], bool]:
        """Tells of the partitions of these topics whether a group reads them, whichever broker coordinates
        it. Raises Unavailable."""
        shared = self._storage.shared_state
        if shared is None:
            return self._is_read
        ids = [topic.id for topic in topics]
        if not ids:
            return lambda partition: False
        partitions = {partition_of(key) for key in await shared.keys_of_topics(Space.OFFSETS, ids)}
        shares = {TopicId(key[:16]) for key in await shared.keys_of_topics(Space.SHARE_GROUPS, ids)}
        return lambda partition: partition in partitions or partition.topic in shares

    def _is_read(self, partition: PartitionId) -> bool:
        return self._groups.offsets.is_read(partition) or self._subscriptions.is_read(partition)

    async def forget_topics(self, topics: Sequence[TopicId]) -> None:
        """Remove offsets and progress in deleted topics."""
        await self._groups.forget_topics(topics)
        await self._subscriptions.forget_topics(topics)

    def forget_topics_soon(self, topics: Sequence[TopicId]) -> None:
        task = asyncio.create_task(self._forget_topics(topics), name="offsets of deleted topics")
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _forget_topics(self, topics: Sequence[TopicId]) -> None:
        try:
            await self.forget_topics(topics)
        except PosthouseError as error:
            # The next broker that loads the groups removes what is left.
            log.warning("offsets of %d deleted topics are not removed yet: %s", len(topics), error)

    async def stop(self) -> None:
        """No more requests come."""
        await self._expiry.stop()
        for task in self._forgetting:
            task.cancel()
        await asyncio.gather(*self._forgetting, return_exceptions=True)
        await self._subscriptions.close()
        if self._storage.shared_state is not None:
            try:
                await self._groups.loading.leave_all()
            except PosthouseError as error:
                log.warning("members of the groups of this broker have to join again: %s", error)
