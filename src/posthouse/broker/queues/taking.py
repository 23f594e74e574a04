"""Messages for those who ask for them: one for a client, or the oldest for the length limit of the queue."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from posthouse.broker.queues.key_order import KeyOrder
from posthouse.broker.queues.loader import Loader
from posthouse.broker.queues.message import Message, MessageLane
from posthouse.broker.queues.requeue import Requeue


class TakingOwner(Protocol):
    """What taking needs of the dispatcher."""

    loader: Loader
    requeue: Requeue
    keys: KeyOrder | None
    lanes: Sequence[MessageLane]
    is_stopped: bool

    @property
    def changing(self) -> asyncio.Task[None] | None:
        """Overflow or requeue under way: no message is delivered before it has ended."""

    @property
    def is_held_back(self) -> bool:
        """The limits of the queue allow no delivery now."""

    def take(self, most: int) -> list[Message]:
        """Lease up to `most` messages."""

    def tell_room(self) -> None:
        """There may be room for publishes."""


async def take_one(owner: TakingOwner) -> Message | None:
    """One message, leased; None when there is none, or none may be delivered now. Raises Unavailable."""
    while True:
        if owner.is_stopped:
            return None
        if (changing := owner.changing) is not None:
            await asyncio.wait([changing])
            continue
        owner.loader.plan_reservation()
        if taken := owner.take(1):
            owner.tell_room()
            return taken[0]
        if owner.is_held_back:
            return None
        if owner.loader.reserving is not None:
            await owner.loader.reserved()
        elif owner.loader.filling is not None or _has_more(owner):
            await owner.loader.filled()
        else:
            return None


def _has_more(owner: TakingOwner) -> bool:
    if owner.keys is not None and owner.keys.is_crowded:
        return False
    return any(lane.has_more for lane in owner.lanes)


async def take_oldest(owner: TakingOwner, count: Callable[[], int]) -> list[Message] | None:
    """Lease the oldest `count` messages of the lowest priority; None where the caller must try again."""
    await owner.requeue.done()  # the oldest may be among those
    for lane in owner.lanes:
        if lane.ready <= 0:
            continue
        if owner.keys is not None:
            owner.keys.free_all()  # those that wait for others of their key may be the oldest
        while lane.is_drained and not owner.is_stopped:
            await owner.loader.filled(lane)
        owner.loader.plan_reservation()
        await owner.loader.reserved()
        if owner.requeue.task is not None:
            return None
        if lane.ready <= 0:
            continue  # what is left of it cannot be read
        taken = lane.take(count())
        return None if not taken and lane.is_drained else taken
    return []
