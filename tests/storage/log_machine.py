"""A plain model of a log beside a storage: the rules that hold of every storage that keeps its data."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from posthouse.model.clock import ManualClock
from posthouse.model.errors import OffsetOutOfRange
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.storage.bounds import Bounds, TimestampedOffset
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation, Put, Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all, values_in

T = TypeVar("T")

PARTITIONS = st.integers(0, 2)
VALUES = st.lists(st.tuples(st.binary(max_size=60), st.integers(-1, 1000)), min_size=1, max_size=3)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), PARTITIONS, VALUES),
        st.tuples(st.just("trim"), PARTITIONS, st.integers(0, 60)),
        st.tuples(st.just("put"), st.sampled_from([b"a", b"b"]), st.none() | st.binary(max_size=20)),
    ),
    min_size=1,
    max_size=5,
)


class ModelLog:
    def __init__(self) -> None:
        self.start = 0
        self.records: list[tuple[bytes, int]] = []

    def kept(self) -> list[tuple[int, bytes, int]]:
        return [(o, value, time) for o, (value, time) in enumerate(self.records) if o >= self.start]


class LogMachine(RuleBasedStateMachine):
    """A subclass makes the storage and the topic, and says what a restart and a crash are."""

    storage: Storage
    topic: Topic

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.logs: dict[PartitionId, ModelLog] = {}
        self.state: dict[bytes, bytes] = {}
        self.pending: list[tuple[asyncio.Future[list[Outcome]], list[Outcome]]] = []

    def run(self, work: Awaitable[T]) -> T:
        async def wrap() -> T:
            return await asyncio.wait_for(work, 30)

        return self.loop.run_until_complete(wrap())

    def open_new(self, storage: Storage, topic: Topic) -> None:
        """The first storage of the example."""
        self.storage, self.topic = storage, topic
        self.run(storage.open())
        self.run(storage.create_topics([topic]))
        self.logs = {id: ModelLog() for id in topic.partition_ids()}

    def open_again(self, storage: Storage) -> None:
        self.storage = storage
        self.run(storage.open())
        assert storage.take_state(Space.OFFSETS) == self.state

    @rule(operations=OPERATIONS)
    def commit(self, operations: list[tuple[str, int | bytes, object]]) -> None:
        """Placed now, awaited some time later."""
        made: list[Operation] = []
        expected: list[Outcome] = []
        for kind, target, detail in operations:
            if isinstance(target, bytes):
                assert detail is None or isinstance(detail, bytes)
                made.append(Put(Space.OFFSETS, target, detail))
                self._put(target, detail)
                expected.append(Outcome(-1, -1))
                continue
            partition = self.topic.partition(target)
            if isinstance(detail, list):
                assert kind == "append"
                made.append(self._append(partition, detail, expected))
            else:
                assert isinstance(detail, int)
                made.append(Trim(partition, detail))
                log = self.logs[partition]
                log.start = max(log.start, min(detail, len(log.records)))
                expected.append(Outcome(log.start, log.start))

        async def commit() -> asyncio.Future[list[Outcome]]:
            return self.storage.commit(made)

        self.pending.append((self.run(commit()), expected))

    def _put(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value

    def _append(
        self, partition: PartitionId, records: list[tuple[bytes, int]], expected: list[Outcome]
    ) -> Append:
        log = self.logs[partition]
        expected.append(Outcome(len(log.records), log.start))
        log.records += records
        values, times = zip(*records, strict=True)
        return append(partition, *values, timestamps=times)

    @rule()
    def settle(self) -> None:
        for future, expected in self.pending:
            assert self.run(future) == expected
        self.pending.clear()

    @rule(by_size=st.booleans())
    def retain(self, by_size: bool) -> None:
        self.settle()
        limits = {"retention_bytes": "300"} if by_size else {"retention_bytes": "-1"}
        overrides = {key.replace(".", "_"): value for key, value in self.topic.overrides.items()}
        self.topic = make_topic("orders", 3, id=self.topic.id, **{**overrides, "retention_ms": "-1"} | limits)
        self.run(self.storage.update_topic(self.topic))
        self.run(self.storage.enforce_retention())
        for partition, log in self.logs.items():
            start = self.storage.bounds(partition).start
            assert start >= log.start and (by_size or start == log.start)
            log.start = start

    @precondition(lambda self: self.logs)
    @invariant()
    def bounds_agree(self) -> None:
        for partition, log in self.logs.items():
            bounds = self.storage.bounds(partition)
            assert bounds.end <= len(log.records) and bounds.start <= log.start
            if not self.pending:
                assert bounds == Bounds(log.start, len(log.records), len(log.records))

    @rule(offset=st.integers(0, 60), max_bytes=st.integers(0, 500))
    def read(self, offset: int, max_bytes: int) -> None:
        for partition, log in self.logs.items():
            bounds = self.storage.bounds(partition)
            if bounds.start <= offset < bounds.end:
                try:
                    found = values_in(self.run(self.storage.read(partition, offset, max_bytes)).data)
                except OffsetOutOfRange:  # a trim that was under way has become durable
                    assert self.pending and offset < self.storage.bounds(partition).start
                    continue
                assert offset in found
                assert found == {each: log.records[each][0] for each in found}

    @rule(timestamp=st.integers(-1, 1001))
    def find(self, timestamp: int) -> None:
        self.settle()
        for partition, log in self.logs.items():
            kept = log.kept()
            by_time = next((TimestampedOffset(o, t) for o, _, t in kept if t >= timestamp), None)
            assert self.run(self.storage.find_timestamp(partition, timestamp)) == by_time
            highest = max((t for _, _, t in kept), default=None)
            latest = next((TimestampedOffset(o, t) for o, _, t in kept if t == highest), None)
            assert self.run(self.storage.find_max_timestamp(partition)) == latest

    @rule()
    def read_everything(self) -> None:
        self.settle()
        for partition, log in self.logs.items():
            found = self.run(read_all(self.storage, partition))
            assert {o: v for o, v in found.items() if o >= log.start} == {o: v for o, v, _ in log.kept()}

    def teardown(self) -> None:
        if self.logs:
            self.settle()
            self.read_everything()
            self.run(self.storage.close())
        self.loop.close()
