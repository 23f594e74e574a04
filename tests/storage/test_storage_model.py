"""The file engine against a plain model of a log, with restarts, crashes and checkpoints at any moment."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from posthouse.model.clock import ManualClock
from posthouse.model.errors import OffsetOutOfRange
from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Bounds, TimestampedOffset
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.operations import Append, Operation, Put, Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space
from tests.directories import IN_MEMORY
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.stores import crash_copy

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


class StorageMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp(prefix="posthouse-model-", dir=IN_MEMORY))
        self.life = 0
        self.clock = ManualClock()
        self.logs: dict[PartitionId, ModelLog] = {}
        self.state: dict[bytes, bytes] = {}
        self.pending: list[tuple[asyncio.Future[list[Outcome]], list[Outcome]]] = []

    def run(self, work: Awaitable[T]) -> T:
        async def wrap() -> T:
            return await asyncio.wait_for(work, 30)

        return self.loop.run_until_complete(wrap())

    @property
    def directory(self) -> Path:
        return self.root / str(self.life)

    def make_storage(self) -> FileStorage:
        return FileStorage(
            self.directory,
            clock=self.clock,
            journal_bytes=self.journal_bytes,
            open_files=2,
            checkpoint_seconds=3600,
        )

    @initialize(
        journal_bytes=st.sampled_from([300, 4096]),
        segment_bytes=st.sampled_from(["14", "200", "500"]),
        interval=st.sampled_from(["0", "64", "4096"]),
        durability=st.sampled_from(["fsync", "os"]),
    )
    def begin(self, journal_bytes: int, segment_bytes: str, interval: str, durability: str) -> None:
        self.journal_bytes = journal_bytes
        self.storage = self.make_storage()
        self.topic = make_topic(
            partitions=3, segment_bytes=segment_bytes, index_interval_bytes=interval, durability=durability
        )
        self.run(self.storage.open())
        self.run(self.storage.create_topics([self.topic]))
        self.logs = {id: ModelLog() for id in self.topic.partition_ids()}

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

    @rule()
    def checkpoint(self) -> None:
        self.run(self.storage.checkpoint())

    @rule()
    def checkpoint_beside_commits(self) -> None:
        async def both() -> None:
            futures = [future for future, _ in self.pending]
            await asyncio.gather(self.storage.checkpoint(), *futures)

        self.run(both())

    @rule()
    def restart(self) -> None:
        self.run(self.storage.close())
        self.settle()
        self._reopen()

    @rule()
    def crash(self) -> None:
        """Killed with nothing outstanding: exactly what was acknowledged is there."""
        self.settle()
        self._leave_behind()
        self._reopen()

    @rule()
    def crash_twice(self) -> None:
        self.crash()
        self._leave_behind()
        self._reopen()

    def _leave_behind(self) -> None:
        self.life += 1
        self.run(crash_copy(self.storage, self.directory))
        self.run(self.storage.close())

    def _reopen(self) -> None:
        self.storage = self.make_storage()
        self.run(self.storage.open())
        assert self.storage.take_state(Space.OFFSETS) == self.state

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
        shutil.rmtree(self.root)


TestStorageModel = StorageMachine.TestCase
TestStorageModel.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
