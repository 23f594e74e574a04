"""Producers of all kinds, readers, and groups of consumers, with the requests of RocketMQ's clients."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Final

from tests.checker.history import Partition, Publish, Send
from tests.torture.brokers import Addresses
from tests.torture.recording import PATIENCE, Recorder
from tests.torture.rocket.groups import Group, note_what_is_left
from tests.torture.rocket.link import RocketLink
from tests.torture.rocket.orderly import Locks, Orderly
from tests.torture.rocket.pushing import Pusher
from tests.torture.rocket.readers import Puller, read_to_the_end
from tests.torture.rocket.senders import HalfSender, Sender
from tests.torture.stream.links import Link
from tests.torture.stream.workload import CONFIG
from tests.torture.workloads import Client

TOPICS: Final = {"rocket": 3, "halves": 2}
_LOOK_SECONDS: Final = 0.1


class RocketWorkload:
    most_promises = 150

    def __init__(self, recorder: Recorder, random: Random, *, delays: bool = True) -> None:
        """Without `delays` no message is delayed: the clock jumps, and nobody knows when it would come."""
        self._recorder = recorder
        self._random = random
        partitions = [(topic, queue) for topic, queues in TOPICS.items() for queue in range(queues)]
        of_halves = [each for each in partitions if each[0] == "halves"]
        self._senders = [Sender(recorder, partitions, random, delays=delays) for _ in range(2)]
        self._halves = [HalfSender(recorder, of_halves, random) for _ in range(2)]
        pullers = [Puller(recorder, partitions, random, commits=commits) for commits in (False, True)]
        pushed = Group(name="rocket-workers", topic="tasks", queues=2, most_retries=1)
        ordered = Group(name="rocket-orderly", topic="steps", queues=3, most_retries=3)
        self._groups = (pushed, ordered)
        consumed = [place for group in self._groups for place in group.places]
        locks = Locks(recorder, ordered)
        self._partitions: list[Partition] = [*partitions, *consumed]
        self.clients: Sequence[Client] = [
            *self._senders,
            *self._halves,
            *pullers,
            Sender(recorder, consumed, random, delays=False),
            *(Pusher(recorder, random, pushed, retries=delays) for _ in range(2)),
            *(Orderly(recorder, random, ordered, locks) for _ in range(2)),
        ]

    async def prepare(self, addresses: Addresses) -> None:
        topics = dict(TOPICS)
        for group in self._groups:
            topics |= {group.topic: group.queues, f".RETRY.{group.name}": 1, f".DLQ.{group.name}": 1}
        async with Link(addresses) as wire:
            for topic, queues in topics.items():
                await wire.create_topic(topic, queues, **CONFIG)

    async def finish(self, addresses: Addresses) -> None:
        self._note_publishes()
        try:
            for each in self._halves:
                await each.finish(addresses)
        finally:  # a broker that has lost a half message may have lost more
            await self._look(addresses)

    async def _look(self, addresses: Addresses) -> None:
        await asyncio.sleep(max(0.0, max(each.latest_due for each in self._senders) - time.monotonic()))
        deadline = time.monotonic() + PATIENCE
        async with RocketLink(addresses) as link:
            await self._read_everything(link, deadline)
            for group in self._groups:
                await note_what_is_left(link, self._recorder, group, deadline)

    async def _read_everything(self, link: RocketLink, deadline: float) -> None:
        wanted = set().union(*(each.delayed for each in self._senders))
        while True:
            reads = [await read_to_the_end(link, each) for each in self._partitions]
            seen = {value for read in reads for _, value in read.records}
            if wanted <= seen or time.monotonic() > deadline:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for read in reads:
            self._recorder.add(read)  # half messages that were rolled back are in no log

    def _note_publishes(self) -> None:
        """What was sent to the topics of groups, each as if it had a publisher of its own: queues have no
        order among them, and the order within each is that of the log."""
        queues = {group.topic: group.queue for group in self._groups}
        for send in [each for each in self._recorder.history if isinstance(each, Send)]:
            if send.partition[0] in queues:
                process, queue = self._recorder.process(), queues[send.partition[0]]
                self._recorder.add(
                    Publish(process, send.invoked, send.completed, queue, send.value, send.outcome)
                )
