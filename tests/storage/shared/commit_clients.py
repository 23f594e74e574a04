"""Producers, a group and a reader on a storage without a broker: what they do and are told is a history.

Their topics are `inline` and `object`, by the path that their commits take. `object-0` is trimmed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from posthouse.model.errors import StorageClosed, StorageFenced, Unavailable
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import Readable, iter_headers, parse_header
from posthouse.records.control import build_marker
from posthouse.records.record import iter_records
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage import outcomes as storage_outcomes
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation, Put, Trim
from posthouse.storage.spaces import Space
from tests.checker.history import (
    Assign,
    CommitOffset,
    CommittedOffset,
    End,
    FinalRead,
    Outcome,
    Partition,
    Poll,
    Send,
    Watermarks,
)
from tests.storage.batches import make_topic
from tests.torture.recording import Recorder
from tests.torture.stream.links import build_batch, decode_value

PATHS = ("inline", "object")
PARTITIONS = 2
TRIMMED: Partition = ("object", 0)
GROUP = "audit"
_RETRY_SECONDS = 0.01


class Committing(Protocol):
    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[storage_outcomes.Outcome]]: ...


@dataclass(slots=True)
class Scene:
    """What all clients share. `storage` is replaced by a takeover."""

    recorder: Recorder
    random: Random
    topics: dict[str, Topic]
    storage: Storage
    members: Sequence[Committing] = ()
    """Members: they take batches outside of transactions, as `storage` does."""

    def broker(self) -> Committing:
        """Any that takes batches outside of transactions."""
        return self.random.choice([self.storage, *self.members]) if self.members else self.storage

    def partition(self, place: Partition) -> PartitionId:
        return self.topics[place[0]].partition(place[1])

    def all(self) -> list[Partition]:
        return [(name, index) for name in self.topics for index in range(PARTITIONS)]

    async def until_done(self, operations: Sequence[Operation], *, anywhere: bool = False) -> list[int]:
        """Repeat a commit until it is acknowledged, by whichever storage, with `anywhere` by any broker.
        Returns the base offsets."""
        while True:
            broker = self.broker() if anywhere else self.storage
            try:
                return [outcome.base_offset for outcome in await broker.commit(operations)]
            except Unavailable:
                await asyncio.sleep(_RETRY_SECONDS)


async def make_scene(storage: Storage, seed: int) -> Scene:
    topics = {name: make_topic(name, PARTITIONS, latency=name) for name in PATHS}
    await storage.create_topics(list(topics.values()))
    return Scene(Recorder(), Random(seed), topics, storage)


def append(partition: PartitionId, batch: bytearray) -> Append:
    return Append(partition, memoryview(batch), parse_header(batch))


class PlainClient:
    """Commits once. What is refused must not be there; what a fenced storage refuses may be."""

    def __init__(self, scene: Scene, place: Partition) -> None:
        self._scene = scene
        self._place = place
        self._process = scene.recorder.process()

    async def step(self) -> None:
        scene, recorder = self._scene, self._scene.recorder
        values = [recorder.value(), recorder.value()]
        batch = append(scene.partition(self._place), build_batch(values, scene.random))
        invoked = recorder.now()
        outcome, base = Outcome.OK, 0
        try:
            [done] = await scene.broker().commit([batch])
            base = done.base_offset
        except (StorageFenced, StorageClosed):
            outcome = Outcome.UNKNOWN
        except Unavailable:
            outcome = Outcome.FAILED
        now = recorder.now()
        for number, value in enumerate(values):
            offset = base + number if outcome is Outcome.OK else None
            recorder.add(Send(self._process, invoked, now, self._place, value, outcome, offset))


class IdempotentClient:
    """Repeats a batch until it is acknowledged: it must be there once."""

    def __init__(self, scene: Scene, place: Partition, producer_id: int) -> None:
        self._scene = scene
        self._place = place
        self._producer_id = producer_id
        self._process = scene.recorder.process()
        self._sequence = 0

    async def step(self) -> None:
        scene, recorder = self._scene, self._scene.recorder
        values = [recorder.value(), recorder.value()]
        batch = build_batch(
            values, scene.random, producer_id=self._producer_id, epoch=0, sequence=self._sequence
        )
        self._sequence += len(values)
        invoked = recorder.now()
        [base] = await scene.until_done([append(scene.partition(self._place), batch)], anywhere=True)
        now = recorder.now()
        for number, value in enumerate(values):
            recorder.add(Send(self._process, invoked, now, self._place, value, Outcome.OK, base + number))


class TransactionalClient:
    """A batch in each of two partitions, then both markers in one commit."""

    def __init__(self, scene: Scene, places: Sequence[Partition], producer_id: int) -> None:
        self._scene = scene
        self._places = places
        self._producer_id = producer_id
        self._process = scene.recorder.process()
        self._sequences = dict.fromkeys(places, 0)

    async def step(self) -> None:
        scene, recorder = self._scene, self._scene.recorder
        number = recorder.transaction()
        for place in self._places:
            await self._send(place, number)
        is_commit = scene.random.random() < 0.7
        markers = [
            append(scene.partition(place), build_marker(self._producer_id, 0, commit=is_commit, timestamp=1))
            for place in self._places
        ]
        invoked = recorder.now()
        await scene.until_done(markers)
        recorder.add(End(self._process, invoked, recorder.now(), number, is_commit, Outcome.OK))

    async def _send(self, place: Partition, number: int) -> None:
        scene, recorder = self._scene, self._scene.recorder
        value = recorder.value()
        batch = build_batch(
            [value],
            scene.random,
            producer_id=self._producer_id,
            epoch=0,
            sequence=self._sequences[place],
            transactional=True,
        )
        self._sequences[place] += 1
        invoked = recorder.now()
        [base] = await scene.until_done([append(scene.partition(place), batch)])
        recorder.add(Send(self._process, invoked, recorder.now(), place, value, Outcome.OK, base, number))


class GroupClient:
    """Moves the progress of a group, and appends a record in the same commit."""

    def __init__(self, scene: Scene, place: Partition) -> None:
        self._scene = scene
        self._place = place
        self._process = scene.recorder.process()
        self._offset = 0

    async def step(self) -> None:
        scene, recorder = self._scene, self._scene.recorder
        value = recorder.value()
        self._offset += 1
        operations: list[Operation] = [
            append(scene.partition(self._place), build_batch([value], scene.random)),
            Put(Space.OFFSETS, progress_key(scene, self._place), b"%d" % self._offset),
        ]
        invoked = recorder.now()
        outcome, base = Outcome.OK, None
        try:
            base = (await scene.storage.commit(operations))[0].base_offset
        except (StorageFenced, StorageClosed):
            outcome = Outcome.UNKNOWN
        except Unavailable:
            outcome = Outcome.FAILED
        now = recorder.now()
        recorder.add(Send(self._process, invoked, now, self._place, value, outcome, base))
        recorder.add(CommitOffset(self._process, invoked, now, GROUP, self._place, self._offset, outcome))


class TrimmingClient:
    """Deletes all but the newest records of one partition. They must not come back."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._process = scene.recorder.process()

    async def step(self) -> None:
        scene = self._scene
        partition = scene.partition(TRIMMED)
        await scene.until_done([Trim(partition, scene.storage.bounds(partition).end - 4)])
        note_watermarks(scene, self._process, TRIMMED)


class ReadingClient:
    """Reads what is new in all partitions, as far as it is in memory."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._process = scene.recorder.process()
        self._positions = dict.fromkeys(scene.all(), 0)
        scene.recorder.add(Assign(self._process, scene.recorder.now(), dict(self._positions)))

    async def step(self) -> None:
        scene, recorder = self._scene, self._scene.recorder
        for place in scene.all():
            if place == TRIMMED:
                continue  # its start overtakes readers
            partition = scene.partition(place)
            invoked = recorder.now()
            try:
                found = await scene.storage.read(partition, self._positions[place], 2**20)
            except Unavailable:
                if not scene.members:
                    raise
                continue  # not in memory, because another broker has written it
            now = recorder.now()
            records = [(place, offset, value) for offset, value in visible(found.data, [])]
            if records:
                recorder.add(Poll(self._process, invoked, now, False, records))
            for _, header in iter_headers(found.data):
                self._positions[place] = header.next_offset
            note_watermarks(scene, self._process, place)


def note_watermarks(scene: Scene, process: int, place: Partition) -> None:
    now = scene.recorder.now()
    bounds = scene.storage.bounds(scene.partition(place))
    scene.recorder.add(Watermarks(process, now, now, place, bounds.start, bounds.stable, bounds.end))


def visible(data: Readable, aborted: Sequence[AbortedProducer]) -> list[tuple[int, int]]:
    """Offsets and values."""
    view = memoryview(data)
    return [
        (record.offset, decode_value(record.value or b""))
        for position, header in visible_batches(data, aborted)
        for record in iter_records(view[position : position + header.length])
    ]


def progress_key(scene: Scene, place: Partition) -> bytes:
    partition = scene.partition(place)
    return bytes(partition.topic) + partition.index.to_bytes(4, "big") + GROUP.encode()


class Clients:
    """One of each kind for both paths."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        steps: list[Callable[[], Awaitable[None]]] = []
        for number, path in enumerate(PATHS):
            for index in range(PARTITIONS):
                steps += [
                    PlainClient(scene, (path, index)).step,
                    IdempotentClient(scene, (path, index), 100 * number + index).step,
                ]
            steps += [
                TransactionalClient(scene, [(path, 0), (path, 1)], 100 * number + 50).step,
                GroupClient(scene, (path, 1)).step,
            ]
        steps.append(TransactionalClient(scene, [("inline", 1), ("object", 1)], 300).step)
        self._steps = [*steps, TrimmingClient(scene).step]
        self._reading = ReadingClient(scene)

    async def round(self) -> None:
        """Each client does one thing, all at the same time; then all is read."""
        await asyncio.gather(*(step() for step in self._steps))
        await self.read()

    async def read(self) -> None:
        await self._reading.step()

    async def finish(self, storage: Storage) -> None:
        """The last look: on a storage that has loaded everything from the database."""
        scene = self._scene
        recorder = scene.recorder
        process = recorder.process()
        state = storage.take_state(Space.OFFSETS)
        now = recorder.now()
        for path in PATHS:
            found = state.get(progress_key(scene, (path, 1)))
            offset = None if found is None else int(found)
            recorder.add(CommittedOffset(process, now, recorder.now(), GROUP, (path, 1), offset))
        for place in scene.all():
            for committed_only in (False, True):
                recorder.add(await _final_read(storage, scene, place, committed_only))


async def _final_read(storage: Storage, scene: Scene, place: Partition, committed_only: bool) -> FinalRead:
    partition = scene.partition(place)
    bounds = storage.bounds(partition)
    end = bounds.stable if committed_only else bounds.end
    position = bounds.start
    records: list[tuple[int, int]] = []
    while position < end:
        data = (await storage.read(partition, position, 2**16, stable_only=committed_only)).data
        following = max((header.next_offset for _, header in iter_headers(data)), default=position)
        aborted = []
        if committed_only:
            aborted = [
                AbortedProducer(each.producer_id, each.first_offset)
                for each in storage.aborted(partition, position, following)
            ]
        records += [(offset, value) for offset, value in visible(data, aborted) if offset >= bounds.start]
        if following == position:
            break
        position = following
    return FinalRead(place, committed_only, bounds.start, end, records)
