"""Consumers: they poll, tell their group how far they are, and begin again from there."""

import asyncio
from contextlib import suppress
from random import Random

from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import (
    Assign,
    CommitOffset,
    CommittedOffset,
    FinalRead,
    Outcome,
    Partition,
    Poll,
    Watermarks,
)
from tests.simulation.batches import Fetched
from tests.simulation.kafka_client import KafkaClient, Refused
from tests.simulation.kafka_wire import Lost
from tests.simulation.producing import PAUSE
from tests.simulation.recorder import Recorder

MOST_RESTS = 50
"""How often in a row a fetch may bring nothing: a broker may not have heard yet what others wrote."""


class Consumer:
    def __init__(
        self,
        recorder: Recorder,
        client: KafkaClient,
        random: Random,
        partitions: list[Partition],
        *,
        committed_only: bool,
        group: str | None = None,
    ) -> None:
        self.recorder = recorder
        self.client = client
        self.random = random
        self.partitions = partitions
        self.committed_only = committed_only
        self.group = group
        self.process = recorder.process()
        self.positions: dict[Partition, int] = {}

    async def assign(self) -> None:
        """Begin at the committed offsets, or at the beginning."""
        positions = dict.fromkeys(self.partitions, 0)
        if self.group is not None:
            positions = {each: offset or 0 for each, offset in (await self.committed(self.group)).items()}
        self.positions = positions
        self.recorder.history.append(Assign(self.process, self.recorder.now, dict(positions)))

    async def committed(self, group: str) -> dict[Partition, int | None]:
        invoked = self.recorder.now
        offsets = await self.client.committed_offsets(group, self.partitions)
        now = self.recorder.now
        for partition, offset in offsets.items():
            self.recorder.history.append(
                CommittedOffset(self.process, invoked, now, group, partition, offset)
            )
        return offsets

    async def poll(self) -> list[tuple[Partition, int, int]]:
        invoked = self.recorder.now
        fetched = await self.client.fetch(
            self.positions,
            committed_only=self.committed_only,
            wait_ms=self.random.choice((0, 50, 500)),
            max_bytes=self.random.choice((1, 300, 100_000)),
        )
        now = self.recorder.now
        records: list[tuple[Partition, int, int]] = []
        overtaken: list[Partition] = []
        for partition, found in fetched.items():
            if isinstance(found, Refused):
                if found.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    overtaken.append(partition)
                continue
            records += [(partition, offset, value) for offset, value in found.records]
            if found.next > self.positions[partition]:
                # Next time it comes behind those that got nothing: answers may be too small for all.
                del self.positions[partition]
                self.positions[partition] = found.next
            self._note_watermarks(invoked, partition, found)
        self.recorder.history.append(Poll(self.process, invoked, now, self.committed_only, records))
        if overtaken:
            self.positions |= await self.client.starts_of(overtaken)
            self.recorder.history.append(Assign(self.process, self.recorder.now, dict(self.positions)))
        return records

    def _note_watermarks(self, invoked: int, partition: Partition, found: Fetched) -> None:
        self.recorder.history.append(
            Watermarks(
                self.process,
                invoked,
                self.recorder.now,
                partition,
                found.start,
                found.stable,
                found.end,
                self.client.broker,
            )
        )

    async def commit(self) -> None:
        assert self.group is not None
        offsets = dict(self.positions)
        invoked = self.recorder.now
        outcome = Outcome.UNKNOWN
        try:
            await self.client.commit_offsets(self.group, offsets)
            outcome = Outcome.OK
        except (Lost, Refused):
            pass  # it stays unknown
        now = self.recorder.now
        for partition, offset in offsets.items():
            self.recorder.history.append(
                CommitOffset(self.process, invoked, now, self.group, partition, offset, outcome)
            )


async def consume(consumer: Consumer) -> None:
    random = consumer.random
    is_assigned = False
    while not consumer.recorder.is_over:
        try:
            if not is_assigned:
                await consumer.assign()
                is_assigned = True
            await consumer.poll()
            if consumer.group is not None and random.random() < 0.3:
                await consumer.commit()
            if random.random() < 0.05:
                is_assigned = False
        except (Lost, Refused):
            pass  # its position is what it was
        await asyncio.sleep(PAUSE * 3 * random.random())
    consumer.client.disconnect()


async def trim(recorder: Recorder, client: KafkaClient, random: Random, partitions: list[Partition]) -> None:
    """Deletes records now and then, from the beginning on."""
    while not recorder.is_over:
        await asyncio.sleep(random.random())
        with suppress(Lost, Refused):  # perhaps there are not so many
            await client.delete_records(random.choice(partitions), random.randrange(1, 30))
    client.disconnect()


async def read_all(
    recorder: Recorder, client: KafkaClient, partitions: list[Partition], *, committed_only: bool
) -> None:
    """For the end, when everything works: all of these partitions."""
    starts = await client.starts_of(partitions)
    ends = await client.ends_of(partitions, committed_only=committed_only)
    records: dict[Partition, list[tuple[int, int]]] = {partition: [] for partition in partitions}
    positions = {each: start for each, start in starts.items() if start < ends[each]}
    rests = 0
    while positions:
        fetched = await client.fetch(positions, committed_only=committed_only, wait_ms=50, max_bytes=100_000)
        has_moved = False
        for partition, found in fetched.items():
            if isinstance(found, Refused):
                raise found
            records[partition] += found.records
            if found.next > positions[partition]:
                has_moved = True
                del positions[partition]  # it goes behind those that got nothing, whose turn it is
            ends[partition] = max(ends[partition], found.stable if committed_only else found.end)
            if found.next < ends[partition]:
                positions[partition] = found.next
            else:
                positions.pop(partition, None)
        rests = 0 if has_moved else rests + 1
        if rests == MOST_RESTS:
            break  # the checker hears of it
    for partition, start in starts.items():
        final = FinalRead(partition, committed_only, start, ends[partition], records[partition])
        recorder.history.append(final)
