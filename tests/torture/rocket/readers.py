"""Readers: one that follows all queues, and one that stores how far it has come."""

import asyncio
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.codec.stored_messages import decode_stored_messages
from tests.checker.history import Assign, CommitOffset, CommittedOffset, FinalRead, Outcome, Partition, Poll
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.rocket.link import NotStored, RocketLink
from tests.torture.stream.links import decode_value
from tests.torture.workloads import RETRY_SECONDS

GROUP: Final = "rocket-group"
_PAUSE_SECONDS: Final = 0.01


async def pulled(
    link: RocketLink, partition: Partition, offset: int
) -> tuple[list[tuple[Partition, int, int]], int, int]:
    """Partition, offset and value of each message; the offset to go on from, and the end."""
    body, following, end = await link.pull(partition, offset)
    messages = decode_stored_messages(body)
    return [(partition, each.queue_offset, decode_value(each.body)) for each in messages], following, end


class Puller:
    def __init__(
        self, recorder: Recorder, partitions: list[Partition], random: Random, *, commits: bool
    ) -> None:
        """With `commits` it stores its progress, and begins there in each life of the broker."""
        self._recorder = recorder
        self._process = recorder.process()
        self._random = random
        self._commits = commits
        self._positions = dict.fromkeys(partitions, 0)
        recorder.add(Assign(self._process, recorder.now(), dict.fromkeys(partitions, 0)))

    async def live(self, addresses: Addresses) -> None:
        async with RocketLink(addresses) as link:
            if self._commits:
                await self._begin(link)
            while True:
                for partition in self._positions:
                    await self._poll(link, partition)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _begin(self, link: RocketLink) -> None:
        for partition in self._positions:
            invoked = self._recorder.now()
            answer = await link.ask(RequestCode.QUERY_CONSUMER_OFFSET, _group_fields(partition))
            offset = int(answer.fields["offset"])
            now = self._recorder.now()
            # 0 is what a group without an offset is told, too.
            self._recorder.add(CommittedOffset(self._process, invoked, now, GROUP, partition, offset or None))
            self._positions[partition] = offset
        self._recorder.add(Assign(self._process, self._recorder.now(), dict(self._positions)))

    async def _poll(self, link: RocketLink, partition: Partition) -> None:
        invoked = self._recorder.now()
        records, following, _ = await pulled(link, partition, self._positions[partition])
        if records:
            self._recorder.add(Poll(self._process, invoked, self._recorder.now(), True, records))
        moved = following > self._positions[partition]
        self._positions[partition] = following
        if self._commits and moved and self._random.random() < 0.3:
            try:
                await self._commit(link, partition, following)
            except NotStored:
                self._recorder.refused()
                await asyncio.sleep(RETRY_SECONDS)

    async def _commit(self, link: RocketLink, partition: Partition, offset: int) -> None:
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            fields = _group_fields(partition) | {"commitOffset": str(offset)}
            await link.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            outcome = Outcome.OK
        finally:
            now = self._recorder.now()
            self._recorder.add(CommitOffset(self._process, invoked, now, GROUP, partition, offset, outcome))
        self._recorder.moved()


def _group_fields(partition: Partition) -> dict[str, str]:
    topic, queue = partition
    return {"consumerGroup": GROUP, "topic": topic, "queueId": str(queue)}


async def read_to_the_end(link: RocketLink, partition: Partition) -> FinalRead:
    records: list[tuple[int, int]] = []
    offset = 0
    while True:
        found, offset, end = await pulled(link, partition, offset)
        records += [(each, value) for _, each, value in found]
        if offset >= end:
            return FinalRead(partition, True, 0, end, records)
