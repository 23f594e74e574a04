"""Reads the ready messages of a queue in the order of delivery, without leasing them.

Nothing about the queue changes: no message counts as delivered, and consumers get it as before. What is
leased, settled or expired is left out. Messages that arrive after the browsing began are not read.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.rereading import Rereading
from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged
from posthouse.storage.contract import Storage

_LEASED_AT_ONCE = 4096
"""Leased positions that are passed in one turn of the event loop."""


async def ready_messages(
    storage: Storage, clock: Clock, source: MessageSource, lanes: Sequence[MessageLane], at_once: int
) -> AsyncGenerator[list[Message], None]:
    """In pieces of at most `at_once`; bodies are loaded. The highest priority comes first.

    A caller that waits between two pieces has to look again whether a message is still ready.
    """
    for lane in reversed(lanes):
        end = lane.end
        reader = LaneReader(storage, source, lane, lane.progress.floor, only_looks=True)
        async for messages in _stashed(storage, lane, reader, at_once):
            yield messages
        async for messages in _logged(lane, reader, end, at_once):
            if ready := [message for message in messages if is_ready(message, clock.now_ms())]:
                yield ready


def is_ready(message: Message, now_ms: int) -> bool:
    lane, position = message.lane, message.position
    if position in lane.leases.holders or lane.is_gone or lane.has_expired(message, now_ms):
        return False
    return not lane.progress.is_settled(position) or position in lane.progress.stash


async def _stashed(
    storage: Storage, lane: MessageLane, reader: LaneReader, at_once: int
) -> AsyncGenerator[list[Message], None]:
    """Stashed messages are older than those in the log."""
    positions = sorted(lane.progress.stash)
    rereading = Rereading(storage)
    for first in range(0, len(positions), at_once):
        found = []
        for position in positions[first : first + at_once]:
            if position in lane.progress.stash and position not in lane.leases.holders:
                message = reader.stashed(position)
                with suppress(DataDamaged):  # the queue's own reader logs it
                    if await rereading.reload(message):
                        found.append(message)
        if found:
            yield found


async def _logged(
    lane: MessageLane, reader: LaneReader, end: int, at_once: int
) -> AsyncGenerator[list[Message], None]:
    passed = 0
    position = lane.progress.next_unsettled(lane.progress.floor)
    while position < end:
        if position in lane.leases.holders:
            position = lane.progress.next_unsettled(position + 1)
            passed += 1
            if passed % _LEASED_AT_ONCE == 0:
                await asyncio.sleep(0)
            continue
        if position != reader.position:
            reader.seek(position)
        run = await reader.next_run(min(end, position + at_once))
        if run is not None:
            yield await reader.load(*run)
        elif reader.position <= position:
            return  # the rest cannot be read now
        position = lane.progress.next_unsettled(reader.position)
