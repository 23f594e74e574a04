"""Producers of all kinds and readers, with the requests of RocketMQ's clients."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Final

from tests.checker.history import Partition
from tests.torture.brokers import Addresses
from tests.torture.recording import PATIENCE, Recorder
from tests.torture.rocket.link import RocketLink
from tests.torture.rocket.readers import Puller, read_to_the_end
from tests.torture.rocket.senders import HalfSender, Sender
from tests.torture.stream.links import Link
from tests.torture.stream.workload import CONFIG
from tests.torture.workloads import Client

TOPICS: Final = {"rocket": 3, "halves": 2}
_LOOK_SECONDS: Final = 0.1


class RocketWorkload:
    most_promises = 120

    def __init__(self, recorder: Recorder, random: Random, *, delays: bool = True) -> None:
        """Without `delays` no message is delayed: the clock jumps, and nobody knows when it would come."""
        self._recorder = recorder
        self._random = random
        self._partitions: list[Partition] = [
            (topic, queue) for topic, queues in TOPICS.items() for queue in range(queues)
        ]
        of_halves = [each for each in self._partitions if each[0] == "halves"]
        self._senders = [Sender(recorder, self._partitions, random, delays=delays) for _ in range(2)]
        self._halves = [HalfSender(recorder, of_halves, random) for _ in range(2)]
        self._pullers = [
            Puller(recorder, self._partitions, random, commits=commits) for commits in (False, True)
        ]

    async def prepare(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            for topic, queues in TOPICS.items():
                await wire.create_topic(topic, queues, **CONFIG)

    @property
    def clients(self) -> Sequence[Client]:
        return [*self._senders, *self._halves, *self._pullers]

    async def finish(self, addresses: Addresses) -> None:
        for each in self._halves:
            await each.finish(addresses)
        wanted = set().union(*(each.delayed for each in self._senders))
        await asyncio.sleep(max(0.0, max(each.latest_due for each in self._senders) - time.monotonic()))
        deadline = time.monotonic() + PATIENCE
        async with RocketLink(addresses) as link:
            while True:
                reads = [await read_to_the_end(link, each) for each in self._partitions]
                seen = {value for read in reads for _, value in read.records}
                if wanted <= seen or time.monotonic() > deadline:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        for read in reads:
            self._recorder.add(read)  # half messages that were rolled back are in no log
