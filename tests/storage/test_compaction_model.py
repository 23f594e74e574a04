"""Compaction against a model: whatever happens in whatever order, readers see the latest of every key."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from posthouse.model.clock import ManualClock
from posthouse.records.compression import Codec
from posthouse.records.record import Record
from posthouse.storage.bounds import Bounds, TimestampedOffset
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.verify import Verification
from posthouse.storage.operations import Append, Trim
from tests.directories import IN_MEMORY
from tests.examples import examples
from tests.storage.compacted import Writer, compacted_topic, marker, put, read_committed, read_records
from tests.storage.stores import crash_copy

T = TypeVar("T")

KEYS = st.sampled_from([b"a", b"b", b"c", b"long" * 20])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=40)), min_size=1, max_size=4)
PRODUCERS = st.integers(1, 3)


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp(prefix="posthouse-compaction-", dir=IN_MEMORY))
        self.life = 0
        self.clock = ManualClock()
        self.start = self.end = 0
        self.written: dict[int, Record] = {}
        self.appended_at: dict[int, int] = {}
        self.first_pass: dict[int, int] = {}
        """When compaction was first asked for after a tombstone was written."""
        self.ids = {1: 1, 2: 2, 3: 3}
        self.sequences: Counter[int] = Counter()
        self.last: dict[int, tuple[Append, int]] = {}
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.is_open = False

    def run(self, work: Awaitable[T]) -> T:
        async def wrap() -> T:
            return await asyncio.wait_for(work, 30)

        return self.loop.run_until_complete(wrap())

    @property
    def directory(self) -> Path:
        return self.root / str(self.life)

    @initialize(
        segment_bytes=st.sampled_from(["100", "300", "800"]),
        interval=st.sampled_from(["0", "64", "4096"]),
        ratio=st.sampled_from(["0", "0.5"]),
        lag=st.sampled_from(["0", "0", "50"]),
        retention=st.sampled_from([0, 100]),
        map_bytes=st.sampled_from([1, 500, 10**6]),
    )
    def begin(
        self, segment_bytes: str, interval: str, ratio: str, lag: str, retention: int, map_bytes: int
    ) -> None:
        self.map_bytes = map_bytes
        self.retention = retention
        self.lag = int(lag)
        self.topic = compacted_topic(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            delete_retention_ms=str(retention),
            min_compaction_lag_ms=lag,
            min_cleanable_dirty_ratio=ratio,
        )
        self.partition = self.topic.partition(0)
        self.open_storage()
        self.run(self.storage.create_topics([self.topic]))
        self.is_open = True

    def open_storage(self) -> None:
        self.storage = FileStorage(
            self.directory,
            clock=self.clock,
            journal_bytes=4096,
            open_files=3,
            checkpoint_seconds=3600,
            compaction_map_bytes=self.map_bytes,
        )
        self.run(self.storage.open())

    def commit(self, operation: Append) -> int:
        async def work() -> int:
            [outcome] = await self.storage.commit([operation])
            return outcome.base_offset

        return self.run(work())

    def note(self, base: int, pairs: list[tuple[bytes, bytes | None]], timestamp: int) -> list[int]:
        assert base == self.end
        for number, (key, value) in enumerate(pairs):
            headers = (("h", b"%d" % number),) if number % 2 else ()
            self.written[base + number] = Record(base + number, timestamp + number, key, value, headers)
        self.end = base + len(pairs)
        return list(range(base, self.end))

    @rule(pairs=PAIRS, codec=st.sampled_from(Codec), age=st.integers(0, 30))
    def write(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec, age: int) -> None:
        self._write(pairs, codec, age)

    def _write(
        self, pairs: list[tuple[bytes, bytes | None]], codec: Codec = Codec.NONE, age: int = 0
    ) -> None:
        timestamp = self.clock.now_ms() - age
        self.note(
            self.commit(put(self.partition, *pairs, codec=codec, timestamp=timestamp)), pairs, timestamp
        )

    @rule(many=st.lists(PAIRS, min_size=3, max_size=8))
    def write_many(self, many: list[list[tuple[bytes, bytes | None]]]) -> None:
        for pairs in many:
            self._write(pairs)

    @rule(pairs=PAIRS, producer=PRODUCERS)
    def write_in_transaction(self, pairs: list[tuple[bytes, bytes | None]], producer: int) -> None:
        producer, timestamp = self.ids[producer], self.clock.now_ms()
        writer = Writer(producer, self.sequences[producer])
        base = self.commit(put(self.partition, *pairs, writer=writer, timestamp=timestamp))
        self.last[producer] = (put(self.partition, *pairs, writer=writer, timestamp=timestamp), base)
        self.sequences[producer] += len(pairs)
        self.open.setdefault(producer, []).extend(self.note(base, pairs, timestamp))

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        producer = self.ids[producer]
        if producer in self.open:
            assert self.commit(marker(self.partition, producer, commit=commit)) == self.end
            self.end += 1
            records = self.open.pop(producer)
            if not commit:
                self.aborted.update(records)

    @rule(producer=PRODUCERS)
    def repeat(self, producer: int) -> None:
        """The last batch of a producer is recognised, whatever compaction left of it."""
        producer = self.ids[producer]
        if producer in self.last:
            operation, base = self.last[producer]
            assert self.commit(operation) == base

    @rule(by=st.sampled_from([1, 40, 101]))
    def pass_time(self, by: int) -> None:
        self.clock.advance(by / 1000)

    @rule(fraction=st.floats(0, 0.7))
    def trim(self, fraction: float) -> None:
        self.start = max(self.start, int(self.end * fraction))

        async def work() -> None:
            await self.storage.commit([Trim(self.partition, self.start)])

        self.run(work())

    @rule()
    def compact(self) -> None:
        for offset, record in self.written.items():
            if record.value is None:
                self.first_pass.setdefault(offset, self.clock.now_ms())
        self.run(self.storage.compact())

    @rule()
    def compact_again_and_again(self) -> None:
        for _ in range(3):
            self.compact()

    @rule(fraction=st.floats(0, 1), steps=st.integers(0, 6))
    def compact_beside_trim(self, fraction: float, steps: int) -> None:
        """The log is trimmed when the pass has done so many of its steps on the worker thread."""
        for offset in self.written:
            self.first_pass.setdefault(offset, self.clock.now_ms())
        self.start = max(self.start, int(self.end * fraction))
        compactor = self.storage._compactor
        in_worker = compactor._in_worker
        left = steps

        async def trim() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                await self.storage.commit([Trim(self.partition, self.start)])

        async def step(work: Callable[[], T]) -> T:
            done = await in_worker(work)
            await trim()
            return done

        async def both() -> None:
            await self.storage.compact()
            while left >= 0:
                await trim()

        compactor._in_worker = step  # type: ignore[method-assign]
        try:
            self.run(both())
        finally:
            compactor._in_worker = in_worker  # type: ignore[method-assign]

    @rule()
    def restart(self) -> None:
        self.run(self.storage.close())
        self.open_storage()

    @rule()
    def crash(self) -> None:
        before = self.directory
        self.life += 1
        self.run(crash_copy(self.storage, self.directory))
        self.run(self.storage.close())
        shutil.rmtree(before)
        self.open_storage()

    @rule()
    def lose_catalog(self) -> None:
        if any(records[0] < self.start for records in self.open.values()):
            return  # with the first batch of a transaction goes the only trace of where it began
        self.run(self.storage.close())
        (self.directory / "catalog.sqlite").write_bytes(b"not a database" * 100)
        self.open_storage()
        for producer, (_, base) in list(self.last.items()):
            if base < self.start:
                # Its sequences are known from its batches, and those may be gone: it has to begin anew.
                del self.last[producer]
                self.ids = {each: id + 3 if id == producer else id for each, id in self.ids.items()}

    @rule()
    def check_retained_files(self) -> None:
        self.run(self.storage.checkpoint())
        found = list(Verification(self.directory).findings())
        assert not found, found
        log = self.storage._logs[self.partition]
        assert self.storage.size(self.partition) == sum(
            Path(each.path).stat().st_size for each in log.segments
        )

    @precondition(lambda self: self.is_open)
    @invariant()
    def bounds_agree(self) -> None:
        stable = min((each[0] for each in self.open.values()), default=self.end)
        assert self.storage.bounds(self.partition) == Bounds(self.start, self.end, stable)

    @precondition(lambda self: self.is_open)
    @invariant()
    def readers_see_the_latest(self) -> None:
        found = self.run(read_records(self.storage, self.partition))
        assert list(found) == sorted(found)
        for offset, record in found.items():
            assert record == self.written[offset]
        log = self.storage._logs[self.partition]
        stable = self.storage.bounds(self.partition).stable
        untouched = min(stable, log.segments[-1].base_offset if log.segments else self.end)
        latest = self.latest_committed(stable)
        for offset, record in self.written.items():
            if offset < self.start:
                continue
            if offset >= untouched or (self.lag and record.timestamp > self.clock.now_ms() - self.lag):
                assert offset in found
            elif latest.get(record.key) == offset and not (record.value is None and self.may_be_gone(offset)):
                assert offset in found, f"{record} is the latest of its key"
        self.check_region_is_clean(found)
        committed = self.run(read_committed(self.storage, self.partition))
        assert committed == {
            offset: record
            for offset, record in found.items()
            if offset < stable and offset not in self.aborted
        }

    def latest_committed(self, stable: int) -> dict[bytes | None, int]:
        return {
            record.key: offset
            for offset, record in self.written.items()
            if offset < stable and offset not in self.aborted
        }

    def may_be_gone(self, offset: int) -> bool:
        first = self.first_pass.get(offset)
        return first is not None and self.clock.now_ms() >= first + self.retention

    def check_region_is_clean(self, found: dict[int, Record]) -> None:
        clean_to = 0
        for segment in self.storage._logs[self.partition].segments[:-1]:
            if segment.clean_to > segment.base_offset:
                clean_to = segment.clean_to
        keys = [record.key for offset, record in found.items() if offset < clean_to]
        assert len(keys) == len(set(keys)), "a key occurs once in what was compacted"
        assert not any(offset in self.aborted for offset in found if offset < clean_to)

    @rule(back=st.integers(0, 200))
    def find(self, back: int) -> None:
        timestamp = self.clock.now_ms() - back
        found = self.run(read_records(self.storage, self.partition))
        times = [(each.offset, each.timestamp) for each in found.values()]
        first = self.run(self.storage.find_timestamp(self.partition, timestamp))
        assert _is_marker(first, found) or first == next(
            (TimestampedOffset(o, t) for o, t in times if t >= timestamp), None
        )

    def teardown(self) -> None:
        if self.is_open:
            self.run(self.storage.close())
        self.loop.close()
        shutil.rmtree(self.root)


def _is_marker(place: TimestampedOffset | None, found: dict[int, Record]) -> bool:
    return place is not None and place.offset not in found


TestCompactionModel = CompactionMachine.TestCase
TestCompactionModel.settings = settings(
    max_examples=examples(40),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
