"""Acknowledgements on their way to the disk.

They are stored with a short delay, many in one commit. A crash before that causes redelivery of their
messages, never loss.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from posthouse.broker.progress.progress import Progress
from posthouse.model.errors import PosthouseError
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome

_SECONDS = 0.02


class Progressing(Protocol):
    """A lane of a queue, or a partition of a subscription."""

    @property
    def progress(self) -> Progress: ...


class Settling:
    """Owned by the event loop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changed: dict[Progressing, None] = {}
        """In the order of their first change."""
        self._timer: asyncio.TimerHandle | None = None
        self._left: WeakSet[Progressing] = WeakSet()
        """Another broker stores the progress of these lanes: a commit that fails late changes nothing."""

    def changed(self, lane: Progressing) -> None:
        if lane in self._left:
            return
        self._changed[lane] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SECONDS, self._store)

    def forget(self, lane: Progressing) -> None:
        self._changed.pop(lane, None)

    def _store(self) -> None:
        self._timer = None
        lanes, self._changed = self._changed, {}
        operations: list[Operation] = [put for lane in lanes for put in lane.progress.puts()]
        if operations:
            # Fenced or closed: settled messages are redelivered after a restart.
            with suppress(PosthouseError):
                self.store(lanes, operations)

    def store(
        self, lanes: Collection[Progressing], puts: Sequence[Operation]
    ) -> asyncio.Future[list[Outcome]]:
        """Commit the changed progress of these lanes. Failed changes are stored with the next commit."""
        try:
            storing = self._storage.commit(puts)
        except PosthouseError:
            self._again(lanes)
            raise
        storing.add_done_callback(lambda done: self._stored(lanes, done))
        return storing

    def _stored(self, lanes: Collection[Progressing], done: asyncio.Future[list[Outcome]]) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._again(lanes)

    def _again(self, lanes: Collection[Progressing]) -> None:
        for lane in lanes:
            lane.progress.not_stored()
        self._changed |= dict.fromkeys(lane for lane in lanes if lane not in self._left)

    async def leave(self, lanes: Collection[Progressing]) -> None:
        """Store the exact progress of some lanes for the last time. Failed changes are not tried again."""
        for lane in lanes:
            self.forget(lane)
            self._left.add(lane)
        operations: list[Operation] = [put for lane in lanes for put in lane.progress.exact()]
        if operations:
            await self._storage.commit(operations)

    async def close(self, lanes: Iterable[Progressing]) -> None:
        """Store the exact progress of all lanes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._changed.clear()
        operations: list[Operation] = [put for lane in lanes for put in lane.progress.exact()]
        if operations:
            await self._storage.commit(operations)
