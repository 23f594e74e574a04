"""Messages that are left of many, and so are put aside."""

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.stragglers import StragglerLimits
from posthouse.model.clock import ManualClock
from tests.broker.queues.rig import Rig
from tests.broker.queues.test_queue_retention import publish, take

FEW = StragglerLimits(most=5, positions=20, seconds=60, rewritten=0)


async def relieve(rig: Rig, clock: ManualClock) -> None:
    """Let so much time go by that stragglers are put aside, and the log that they held back is let go."""
    rig.retention.limits = FEW
    await rig.retention.reclaim()
    clock.advance(FEW.seconds)
    await rig.retention.reclaim()
    await rig.retention.reclaim()


async def with_stragglers(
    rig: Rig, clock: ManualClock, *held: int, end: int = 40
) -> tuple[Queue, list[Message]]:
    """A queue of `end` messages, all acknowledged but for a few, which are leased and in the stash."""
    queue = await rig.queue()
    await publish(rig, end)
    taken = await take(queue, end)
    queue.ack([message for message in taken if message.position not in held])
    await relieve(rig, clock)
    return queue, [taken[position] for position in held]


def stashed_in(queue: Queue) -> list[int]:
    return sorted(position for lane in queue.lanes for position in lane.progress.stash)
