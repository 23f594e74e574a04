"""Groups of consumers: what the broker has told them, and what is left of it in the end."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from posthouse.protocols.rocketmq.codec.heartbeats import (
    FROM_FIRST_OFFSET,
    ConsumerGroup,
    Heartbeat,
    Subscription,
)
from tests.checker.history import Bury, DeadLetters, Drained, Outcome, Partition
from tests.torture.recording import Recorder
from tests.torture.rocket.link import RocketLink
from tests.torture.stream.links import decode_value

_LOOK_SECONDS: Final = 0.1


@dataclass(slots=True, kw_only=True)
class Group:
    name: str
    topic: str
    queues: int
    most_retries: int
    delivered: set[int] = field(default_factory=set)
    """Values."""
    buried: set[int] = field(default_factory=set)
    """Values that the broker said to have made dead letters because a consumer asked for that."""
    returning: set[tuple[int, int]] = field(default_factory=set)
    """Values that the broker said to deliver again, and the number of the retry."""

    @property
    def queue(self) -> str:
        """What the history calls what it has of its topic."""
        return f"{self.name} of {self.topic}"

    @property
    def places(self) -> list[Partition]:
        return [(self.topic, queue) for queue in range(self.queues)]

    @property
    def retries(self) -> Partition:
        return f"%RETRY%{self.name}", 0

    @property
    def dead_letters(self) -> Partition:
        return f"%DLQ%{self.name}", 0

    def heartbeat(self, client: str) -> Heartbeat:
        topics = (self.topic, self.retries[0])
        subscriptions = tuple(Subscription(topic=topic, expression="*") for topic in topics)
        group = ConsumerGroup(name=self.name, subscriptions=subscriptions, start=FROM_FIRST_OFFSET)
        return Heartbeat(client=client, consumer_groups=(group,))


async def note_what_is_left(link: RocketLink, recorder: Recorder, group: Group, deadline: float) -> None:
    """What a last consumer of the group would find, and its dead letters."""
    while group.returning - await _read(link, group.retries, 0) and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_SECONDS)
    found: dict[int, None] = {}
    for place in (*group.places, group.retries):
        left = await _read(link, place, await link.committed(group.name, place))
        found |= dict.fromkeys(value for value, _ in sorted(left))
    dead = await _read(link, group.dead_letters, 0)
    now = recorder.now()
    for value in group.buried:
        # Not before: a consumer that lost its connection gets again what it has not committed.
        recorder.add(Bury(recorder.process(), now, now, group.queue, value, Outcome.OK))
    recorder.add(Drained(group.queue, [value for value in found if value not in group.buried]))
    recorder.add(DeadLetters(group.queue, 1 + group.most_retries, sorted({value for value, _ in dead})))


async def _read(link: RocketLink, place: Partition, offset: int) -> set[tuple[int, int]]:
    """Values up to the end, and how often each was tried again."""
    values: set[tuple[int, int]] = set()
    while True:
        messages, offset, end = await link.pull(place, offset)
        values |= {(decode_value(each.body), each.reconsume_times) for each in messages}
        if offset >= end:
            return values
