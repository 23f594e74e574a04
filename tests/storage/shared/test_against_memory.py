"""The rules in SQL against those in Python: any commits give the same on the shared storage and in memory.

The memory engine decides with `storage/producers.py`, the shared storage with `commit_group`.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.clock import ManualClock
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.control import build_marker
from posthouse.storage.contract import Storage
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append, Operation, Put, Refer, Run, Trim
from posthouse.storage.outcomes import OperationRefused, Outcome
from posthouse.storage.producers import LAST_SEQUENCE
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.spaces import Space
from tests.examples import examples
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import make_topic
from tests.storage.shared.opened import make_shared

LOGS = 3
_names = itertools.count()
PRODUCERS = st.integers(7, 8)
EPOCHS = st.integers(0, 2)
SEQUENCES = st.one_of(st.integers(0, 4), st.sampled_from([LAST_SEQUENCE - 1, LAST_SEQUENCE]))


@dataclass(frozen=True)
class Batch:
    log: int
    count: int
    producer: tuple[int, int, int] | None
    """Id, epoch, sequence."""
    transactional: bool
    required: bool

    def append(self, topic: Topic) -> Append:
        builder = BatchBuilder()
        if self.producer is not None:
            id, epoch, sequence = self.producer
            builder = BatchBuilder(
                producer_id=id, producer_epoch=epoch, base_sequence=sequence, transactional=self.transactional
            )
        for number in range(self.count):
            builder.add(None, b"%d" % number, (), 1000 + number)
        return _made(topic, self.log, builder.build(), self.required)


@dataclass(frozen=True)
class Marker:
    log: int
    producer: int
    epoch: int
    commit: bool

    def append(self, topic: Topic) -> Append:
        made = build_marker(self.producer, self.epoch, commit=self.commit, timestamp=5)
        return _made(topic, self.log, made, True)


def _made(topic: Topic, log: int, data: bytearray, required: bool) -> Append:
    batch = memoryview(data)
    return Append(topic.partition(log), batch, parse_header(batch), required=required)


@dataclass(frozen=True)
class Step:
    """One commit. References point to its appends by number, or to fixed offsets."""

    batches: Sequence[Batch | Marker]
    refers: Sequence[Sequence[tuple[int | None, int, int]]]
    trims: Sequence[tuple[int, int]]
    puts: Sequence[tuple[bytes, bytes | None]]

    def operations(self, topic: Topic, queues: Topic) -> list[Operation]:
        appends = [each.append(topic) for each in self.batches]
        made: list[Operation] = [*appends]
        for number, runs in enumerate(self.refers):
            made.append(Refer(queues.partition(number), [_run(topic, appends, *each) for each in runs]))
        made += [Trim(topic.partition(log), offset) for log, offset in self.trims]
        made += [Put(Space.OFFSETS, b"." * 20 + key, value) for key, value in self.puts]
        return made


def _run(topic: Topic, appends: Sequence[Append], number: int | None, offset: int, expires: int) -> Run:
    append = appends[number % len(appends)] if appends and number is not None else None
    return Run(
        partition=topic.partition(0) if append is None else append.partition,
        first=offset if append is None else 0,
        count=1 + offset % 3,
        size=offset,
        expires_ms=expires,
        append=append,
    )


BATCHES = st.builds(
    Batch,
    log=st.integers(0, LOGS - 1),
    count=st.integers(1, 3),
    producer=st.none() | st.tuples(PRODUCERS, EPOCHS, SEQUENCES),
    transactional=st.booleans(),
    required=st.booleans(),
)
MARKERS = st.builds(
    Marker, log=st.integers(0, LOGS - 1), producer=PRODUCERS, epoch=EPOCHS, commit=st.booleans()
)


def _key(each: Batch | Marker) -> object:
    """A commit has at most one batch of a producer per partition."""
    if isinstance(each, Marker):
        return each.log, each.producer
    return (each.log, each.producer[0]) if each.producer else object()


STEPS = st.builds(
    Step,
    batches=st.lists(st.one_of(BATCHES, BATCHES, MARKERS), max_size=4, unique_by=_key),
    refers=st.lists(
        st.lists(
            st.tuples(st.none() | st.integers(0, 3), st.integers(0, 9), st.sampled_from([0, 0, 50, 20])),
            min_size=1,
            max_size=3,
        ),
        max_size=2,
    ),
    trims=st.lists(st.tuples(st.integers(0, LOGS - 1), st.integers(0, 12)), max_size=1),
    puts=st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c" * 5000]), st.none() | st.binary(max_size=9)), max_size=2
    ),
)


class Pair:
    """Both storages, in one event loop."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.database = Database(url)
        self.objects = MemoryObjectStore(self.clock)

    async def opened(self, inline_bytes: int) -> SharedStorage:
        made = await make_shared(
            self.database, self.objects, self.clock, tail_bytes=300, inline_bytes=inline_bytes
        )
        await made.open()
        return made


@pytest.fixture(scope="module")
def pair(postgres: PostgresServer) -> Iterator[Pair]:
    with new_database(postgres, MIGRATED) as url:
        made = Pair(url)
        yield made
        made.runner.close()


@settings(max_examples=examples(40))
@given(
    groups=st.lists(st.lists(STEPS, min_size=1, max_size=5), min_size=1, max_size=4),
    inline_bytes=st.sampled_from([100, 10**6]),
)
def test_any_commits_give_the_same(pair: Pair, groups: list[list[Step]], inline_bytes: int) -> None:
    pair.runner.run(_same(pair, groups, inline_bytes))


async def _same(pair: Pair, groups: list[list[Step]], inline_bytes: int) -> None:
    memory = MemoryStorage(pair.clock)
    await memory.open()
    shared = await pair.opened(inline_bytes)
    topics = [make_topic(f"topic-{next(_names)}", partitions=each) for each in (LOGS, 2)]
    try:
        for storage in (memory, shared):
            await storage.create_topics(topics)
        for steps in groups:
            expected, found = [
                await asyncio.gather(
                    *(storage.commit(step.operations(*topics)) for step in steps), return_exceptions=True
                )
                for storage in (memory, shared)
            ]
            assert [_plain(each) for each in found] == [_plain(each) for each in expected]
            pair.clock.advance(1)
        wanted = await _content(memory, topics)
        assert await _content(shared, topics) == wanted
        await shared.close()
        shared = await pair.opened(inline_bytes)
        assert await _content(shared, topics) == wanted
        assert shared.take_state(Space.OFFSETS) == memory._state.get(Space.OFFSETS, {})
    finally:
        await shared.delete_topics([topic.id for topic in topics])
        keys = [b"." * 20 + key for key in (b"a", b"b", b"c" * 5000)]
        await shared.commit([Put(Space.OFFSETS, key, None) for key in keys])
        await shared.close()


def _plain(result: list[Outcome] | BaseException) -> Any:
    if isinstance(result, OperationRefused):
        return type(result.reason), str(result), result.operation.partition
    if isinstance(result, BaseException):
        raise result
    return [(each.base_offset, each.log_start, type(each.refusal), str(each.refusal)) for each in result]


async def _content(storage: Storage, topics: Sequence[Topic]) -> Any:
    found = []
    for topic in topics:
        for partition in topic.partition_ids():
            bounds = storage.bounds(partition)
            data = (await storage.read(partition, bounds.start, 10**6)).data
            stable = (await storage.read(partition, bounds.start, 10**6, stable_only=True)).data
            producers = storage.producers(partition)
            aborted = storage.aborted(partition, 0, 10**6)
            times = [await storage.find_timestamp(partition, at) for at in (0, 6, 1001)]
            found.append((bounds, bytes(data), bytes(stable), producers, aborted, times))
    return found
