"""Readers: one that follows all queues, and one that stores how far it has come."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage
from tests.checker.history import Assign, CommitOffset, CommittedOffset, FinalRead, Outcome, Partition, Poll
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.rocket.link import READERS, NotStored, RocketLink
from tests.torture.stream.links import decode_value
from tests.torture.workloads import RETRY_SECONDS

GROUP: Final = "rocket-group"
_PAUSE_SECONDS: Final = 0.01
_RETRIES: Final = "%RETRY%"


class Reader:
    """Positions in queues, and what is read there. Retries of a group are copies of what is in other queues:
    the history has them as deliveries alone."""

    def __init__(self, recorder: Recorder, group: str) -> None:
        self._recorder = recorder
        self._process = recorder.process()
        self._group = group
        self.positions: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}

    def assign(self, positions: dict[Partition, int]) -> None:
        self.positions = dict(positions)
        self._committed = {}
        self._note_assignment()

    def _note_assignment(self) -> None:
        noted: dict[Partition, int | None] = {
            place: offset for place, offset in self.positions.items() if not place[0].startswith(_RETRIES)
        }
        self._recorder.add(Assign(self._process, self._recorder.now(), noted))

    async def take(self, link: RocketLink, places: Sequence[Partition]) -> None:
        """Read these from now on: what is new from where the group has come to."""
        if set(places) == set(self.positions):
            return
        kept = {place: offset for place, offset in self.positions.items() if place in places}
        for place in places:
            if place not in kept:
                kept[place] = self._committed[place] = await self._where(link, place)
        self.positions = kept
        self._note_assignment()

    async def _where(self, link: RocketLink, place: Partition) -> int:
        invoked = self._recorder.now()
        offset = await link.committed(self._group, place)
        now = self._recorder.now()
        # 0 is what a group without an offset is told, too.
        self._recorder.add(CommittedOffset(self._process, invoked, now, self._group, place, offset or None))
        return offset

    async def pull(self, link: RocketLink, place: Partition, most: int = 64) -> Sequence[StoredMessage]:
        invoked = self._recorder.now()
        messages, following, _ = await link.pull(place, self.positions[place], self._group, most)
        if messages and not place[0].startswith(_RETRIES):
            records = [(place, each.queue_offset, decode_value(each.body)) for each in messages]
            self._recorder.add(Poll(self._process, invoked, self._recorder.now(), True, records))
        self.positions[place] = following
        return messages

    async def commit(self, link: RocketLink, place: Partition) -> None:
        """How far it has come, if that is new."""
        offset = self.positions[place]
        if offset == self._committed.get(place, 0):
            return
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            await link.commit(self._group, place, offset)
            outcome = Outcome.OK
        finally:
            now = self._recorder.now()
            self._recorder.add(CommitOffset(self._process, invoked, now, self._group, place, offset, outcome))
        self._committed[place] = offset
        self._recorder.moved()


class Puller:
    def __init__(
        self, recorder: Recorder, partitions: list[Partition], random: Random, *, commits: bool
    ) -> None:
        """With `commits` it stores its progress, and begins there in each life of the broker."""
        self._recorder = recorder
        self._random = random
        self._commits = commits
        self._partitions = partitions
        self._reader = Reader(recorder, GROUP if commits else READERS)
        self._reader.assign(dict.fromkeys(partitions, 0))

    async def live(self, addresses: Addresses) -> None:
        async with RocketLink(addresses) as link:
            if self._commits:
                self._reader.assign({})
                await self._reader.take(link, self._partitions)
            while True:
                for partition in self._partitions:
                    await self._poll(link, partition)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _poll(self, link: RocketLink, partition: Partition) -> None:
        await self._reader.pull(link, partition)
        if self._commits and self._random.random() < 0.3:
            try:
                await self._reader.commit(link, partition)
            except NotStored:
                self._recorder.refused()
                await asyncio.sleep(RETRY_SECONDS)


async def read_to_the_end(link: RocketLink, partition: Partition) -> FinalRead:
    records: list[tuple[int, int]] = []
    offset = 0
    while True:
        messages, offset, end = await link.pull(partition, offset)
        records += [(each.queue_offset, decode_value(each.body)) for each in messages]
        if offset >= end:
            return FinalRead(partition, True, 0, end, records)
