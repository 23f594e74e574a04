"""The index against a dictionary, with retention, compaction, crashes, lost ends and damage at any moment."""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from posthouse.broker.key_index.names import NameQuery
from posthouse.model.clock import ManualClock
from posthouse.records.compression import Codec
from posthouse.records.record_names import Name, NameKind
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.operations import Trim
from tests.broker.key_index.rig import IndexRig, indexed_topic, keyed, on_disk
from tests.directories import IN_MEMORY
from tests.examples import examples
from tests.storage.stores import crash_copy, file_storage

T = TypeVar("T")

KEYS = [b"a", b"b", b"c", b"dd"]
PARTITIONS = st.integers(0, 1)
RECORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-1, 5000)), min_size=1, max_size=6)


class IndexMachine(RuleBasedStateMachine):
    storage: FileStorage
    rig: IndexRig

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp(prefix="posthouse-model-", dir=IN_MEMORY))
        self.life = 0
        self.clock = ManualClock()
        self.logs: list[dict[int, tuple[bytes, int]]] = [{}, {}]
        self.ends = [0, 0]
        self.earlier: tuple[Path, list[dict[int, tuple[bytes, int]]], list[int]] | None = None
        self.is_compacted = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def wrap() -> T:
            return await asyncio.wait_for(work, 60)

        return self.loop.run_until_complete(wrap())

    @property
    def directory(self) -> Path:
        return self.root / str(self.life)

    @initialize(is_compacted=st.booleans(), segment_bytes=st.sampled_from(["100", "1000"]))
    def begin(self, is_compacted: bool, segment_bytes: str) -> None:
        self.is_compacted = is_compacted
        policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"} if is_compacted else {}
        self.topic = indexed_topic(partitions=2, segment_bytes=segment_bytes, **policy)
        self.run(self._open(is_new=True))

    async def _open(self, *, is_new: bool = False) -> None:
        self.storage = file_storage(self.directory, clock=self.clock)
        await self.storage.open()
        if is_new:
            await self.storage.create_topics([self.topic])
        self.rig = await on_disk(self.storage, str(self.directory), self.clock)

    @rule(partition=PARTITIONS, records=RECORDS, codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
    def append(self, partition: int, records: list[tuple[bytes, int]], codec: Codec) -> None:
        async def commit() -> None:
            [outcome] = await self.storage.commit(
                [keyed(self.topic.partition(partition), *records, codec=codec)]
            )
            assert outcome.base_offset == self.ends[partition]

        self.run(commit())
        for record in records:
            self.logs[partition][self.ends[partition]] = record
            self.ends[partition] += 1

    @rule(partition=PARTITIONS, offset=st.integers(0, 60))
    def trim(self, partition: int, offset: int) -> None:
        async def commit() -> int:
            [outcome] = await self.storage.commit([Trim(self.topic.partition(partition), offset)])
            return outcome.log_start

        start = self.run(commit())
        self.logs[partition] = {at: each for at, each in self.logs[partition].items() if at >= start}

    @rule()
    def compact(self) -> None:
        """Records whose key has a later one may be gone: what is left is read."""
        if not self.is_compacted:
            return
        self.run(self.storage.compact())

    @rule()
    def index_a_little(self) -> None:
        self.run(self.rig.index._turn(rests=False))

    @rule()
    def index_all(self) -> None:
        self.run(self.rig.index.catch_up())

    @rule(seed=st.integers(0, 2**16))
    def damage(self, seed: int) -> None:
        """A byte of a file, or its end, or all of it."""
        drawn = random.Random(seed)
        files = sorted(self.directory.glob("key-index/*/*.keys"))
        if not files:
            return
        path = drawn.choice(files)
        data = bytearray(path.read_bytes())
        match drawn.randrange(4):
            case 0:
                path.unlink()
                return
            case 1:
                data = data[: drawn.randrange(len(data))]
            case 2:
                data = bytearray(len(data))
            case _:
                data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        path.write_bytes(data)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        async def again() -> None:
            before = self.directory
            if is_clean:
                await self.rig.stop()
                await self.storage.close()
                self.life += 1
                shutil.copytree(before, self.directory)
            else:
                self.life += 1
                await crash_copy(self.storage, self.directory)
                await self.rig.stop()
                await self.storage.close()
            await self._open()

        self.run(again())

    @rule()
    def remember(self) -> None:
        """The log as it is now may come back, without what is written from now on."""
        place = self.root / f"earlier-{self.life}"
        if self.earlier is None and not place.exists():
            self.run(crash_copy(self.storage, place))
            self.earlier = place, [dict(each) for each in self.logs], list(self.ends)

    @rule()
    def lose_end(self) -> None:
        """The log of before, and the index of now: as after a power cut with durability=os."""
        if self.earlier is None:
            return
        place, self.logs, self.ends = self.earlier
        self.earlier = None

        async def again() -> None:
            index = self.directory / "key-index"
            await self.rig.stop()
            await self.storage.close()
            self.life += 1
            shutil.rmtree(place / "key-index", ignore_errors=True)
            shutil.copytree(place, self.directory)
            if index.exists():
                shutil.copytree(index, self.directory / "key-index")
            await self._open()

        self.run(again())

    @rule(key=st.sampled_from([*KEYS, b"none"]), since=st.integers(-1, 5000), span=st.integers(0, 5000))
    def search(self, key: bytes, since: int, span: int) -> None:
        found = self.run(self.rig.find(self.topic, key, since=since, until=since + span))
        assert found.is_complete
        hits = [(partition, record.offset) for partition, record in found.records]
        assert len(hits) == len(set(hits))
        for partition, log in enumerate(self.logs):
            expected = {
                at for at, (name, time) in log.items() if name == key and since <= time <= since + span
            }
            there = [at for each, at in hits if each == partition]
            assert there == sorted(there, reverse=True), "newest first"
            if self.is_compacted:
                assert set(there) <= expected
                latest = max((at for at, (name, _) in log.items() if name == key), default=None)
                if latest in expected:
                    assert latest in there, "compaction keeps the last one"
            else:
                assert set(there) == expected

    @rule(key=st.sampled_from(KEYS), start=st.integers(0, 60))
    def places(self, key: bytes, start: int) -> None:
        """They rise, and have all records."""

        async def covered() -> set[int]:
            bounds = self.storage.bounds(self.topic.partition(0))
            first = min(max(start, bounds.start), bounds.end)
            found: set[int] = set()
            last = first
            query = NameQuery(Name(NameKind.KEY, key))
            async for place in self.rig.index.search(query)(self.topic.partition(0), first, bounds.end):
                assert last <= place.first < place.end <= bounds.end
                last = place.end
                found |= set(range(place.first, place.end))
            return found

        expected = {at for at, (name, _) in self.logs[0].items() if name == key and at >= start}
        found = self.run(covered())
        assert expected <= found or self.is_compacted

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.run(self.rig.stop())
            self.run(self.storage.close())
        self.loop.close()
        shutil.rmtree(self.root)


TestKeyIndex = IndexMachine.TestCase
TestKeyIndex.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
