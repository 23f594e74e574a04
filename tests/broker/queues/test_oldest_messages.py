"""When the oldest message of a queue was published."""

from pathlib import Path

from posthouse.broker.queues.queue import Queue
from posthouse.model.clock import ManualClock
from tests.broker.queues.lazy_rig import get
from tests.broker.queues.rig import Rig, running


async def three(rig: Rig, clock: ManualClock, queue: str = "q") -> int:
    """Messages, a second apart; when the first was published."""
    begun = clock.now_ms()
    for number in range(3):
        await rig.publish(b"%d" % number, key=queue.encode())
        clock.advance(1)
    return begun


async def test_a_queue_without_consumers_is_read_once() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        oldest = rig.broker.oldest_messages
        assert await oldest.read_ms(queue) is None  # there is none
        begun = await three(rig, clock)
        assert oldest.known_ms(queue) is None
        assert await oldest.read_ms(queue) == begun
        assert oldest.known_ms(queue) == begun
        assert await oldest.read_ms(queue) == begun
        assert oldest.reads == 1
        oldest.forget_others([])
        assert oldest.known_ms(queue) is None


async def test_messages_in_memory_are_not_read() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        begun = await three(rig, clock)
        oldest = rig.broker.oldest_messages
        first = await get(queue)
        assert oldest.known_ms(queue) == begun + 1000  # the first one is leased
        queue.release([first])
        assert oldest.known_ms(queue) == begun
        assert oldest.reads == 0


async def test_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as rig:
        queue = await rig.queue()
        begun = await three(rig, clock)
        queue.ack([await get(queue)])
    async with running(tmp_path, clock) as rig:
        found = rig.found("q")
        assert isinstance(found, Queue)
        assert await rig.broker.oldest_messages.read_ms(found) == begun + 1000


async def test_the_oldest_of_a_stream() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        stream = await rig.stream()
        begun = await three(rig, clock, "s")
        assert await rig.broker.oldest_messages.read_ms(stream) == begun
