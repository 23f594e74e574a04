"""Runs, crashes, merges, sweeps and losses in any order: each record is served once, leftovers never."""

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from posthouse.client.cluster import TopicInfo
from posthouse.spark.archive.errors import ArchiveConflict
from posthouse.spark.archive.leftovers import Grace, sweep
from posthouse.spark.archive.manifest import Change, Log, Manifest
from posthouse.spark.archive.merging import merge, merges
from posthouse.spark.archive.planning import LogBounds, backlog, steps
from posthouse.spark.archive.reading import ArchivePlan, ArchiveRange
from posthouse.spark.archive.root import Root
from tests.directories import IN_MEMORY
from tests.spark.archive.records import (
    DAY_MS,
    EVERYTHING,
    NOON,
    Record,
    Records,
    all_of,
    archive,
    found,
    topic,
)

PARTITIONS = 2
GRACE = Grace(leftover_ms=DAY_MS, retired_ms=DAY_MS)


class Archive(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(dir=IN_MEMORY, prefix="posthouse-")
        self.logs: dict[Log, Records] = {}
        self.starts: dict[Log, int] = {}
        self.ends: dict[Log, int] = {}
        self.lost: list[tuple[Log, int]] = []
        self.lifes = 0
        self.written = 0

    @initialize()
    def begin(self) -> None:
        self.manifest = self.other = Manifest(Root(self.directory))
        self.recreate()
        self.produce([(0, 0, 1), (1, 0, 1), (0, 1, 2), (1, 0, 1), (0, 0, 1)])

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @precondition(lambda self: self.lifes < 3)
    @rule()
    def recreate(self) -> None:
        """The topic is deleted and created again."""
        self.lifes += 1
        self.topic: TopicInfo = topic(id=self.lifes, partitions=PARTITIONS)
        for log in self.now():
            self.logs[log], self.starts[log], self.ends[log] = {}, 0, 0

    @rule(
        records=st.lists(
            st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 2), st.integers(1, 3)),
            min_size=4,
            max_size=20,
        ),
    )
    def produce(self, records: list[tuple[int, int, int]]) -> None:
        """Records of some partition and day, each with a hole of some size before it."""
        for partition, day, step in records:
            log = self.now()[partition]
            self.written += 1
            offset = self.ends[log] + step - 1
            self.logs[log][offset] = Record(NOON + day * DAY_MS, b"%d" % self.written)
            self.ends[log] = offset + 1

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def lose(self, partition: int) -> None:
        """The broker lets go of everything. What was never archived is gone."""
        log = self.now()[partition]
        self.starts[log] = self.ends[log]
        archived = self.manifest.state.end(log) or 0
        lost = [offset for offset in self.logs[log] if offset >= archived]
        self.lost += [(log, offset) for offset in lost]
        for offset in lost:
            del self.logs[log][offset]

    @rule(
        crash=st.booleans(),
        largest=st.sampled_from([3, 9, 50]),
        tasks=st.integers(1, 3),
        many=st.integers(1, 3),
    )
    def run(self, crash: bool, largest: int, tasks: int, many: int) -> None:
        bounds = {log.partition: LogBounds(self.starts[log], self.ends[log]) for log in self.now()}
        self.manifest.refresh()
        waiting = backlog(self.manifest.state, self.topic, bounds)
        for number, pieces in enumerate(steps([waiting], tasks=tasks, largest=largest, smallest=1)):
            if number == many:
                break
            archive(self.manifest, pieces, self.logs, crash=crash)
            if crash:
                break

    @rule()
    def look_away(self) -> None:
        """A second archiver, which does not see what comes now."""
        self.other = Manifest(Root(self.directory))
        self.other.refresh()

    @precondition(lambda self: self.other.state.version < self.manifest.state.version)
    @rule()
    def run_beside(self) -> None:
        """It plans by what it saw; it may add what nobody did, or must fail."""
        bounds = {log.partition: LogBounds(0, self.ends[log]) for log in self.now()}
        before = {log: self.manifest.state.end(log) for log in self.now()}
        for pieces in steps([backlog(self.other.state, self.topic, bounds)], tasks=2, largest=50, smallest=1):
            taken = {Log(piece.topic.id.hex(), each.partition) for piece in pieces for each in piece.slices}
            moved = any(before[log] != self.other.state.end(log) for log in taken)
            if moved:
                with pytest.raises(ArchiveConflict):
                    archive(self.other, pieces, self.logs)
            break

    @rule(kilobytes=st.integers(10, 40), crash=st.booleans())
    def compact(self, kilobytes: int, crash: bool) -> None:
        self.manifest.refresh()
        some = merges(self.manifest.state, None, target_bytes=kilobytes * 1000, now_ms=2**60)
        files = [file for each in some for file in merge(self.manifest.root, each, "merge")]
        retired = [file.path for each in some for file in each.files]
        if some and not crash:
            self.manifest.commit(Change(add=files, retire=retired), run="merge")

    @rule()
    def tidy(self) -> None:
        """Long after everything: nothing runs, nobody reads."""
        sweep(self.manifest, GRACE, now_ms=2**60)
        data = {each.path for each in self.manifest.root.stored() if not each.path.startswith("_")}
        assert data == self.manifest.state.files.keys()

    @invariant()
    def every_record_is_served_once(self) -> None:
        if not getattr(self, "topic", None):
            return
        reader = Manifest(Root(self.directory))
        reader.refresh()
        plan = ArchivePlan(reader.root, reader.state)
        for log, ranges in reader.state.covered.items():
            expected = [
                (offset, record)
                for offset, record in sorted(self.logs[log].items())
                if any(start <= offset < end for start, end in ranges)
            ]
            assert all_of(plan, log) == expected
            if expected:
                self.check_parts(plan, log, expected)
        for log, offset in self.lost:
            ranges = reader.state.covered.get(log, [])
            assert not any(start <= offset < end for start, end in ranges), "it answers for what it has not"

    def check_parts(self, plan: ArchivePlan, log: Log, expected: list[tuple[int, Record]]) -> None:
        for number in {0, len(expected) // 3, len(expected) // 2, len(expected) - 1}:
            middle, record = expected[number]
            after = ArchiveRange(partition=log.partition, first=middle, end=EVERYTHING)
            assert sorted(found(plan, log.topic_id, after)) == expected[number:]
            before = ArchiveRange(partition=log.partition, first=0, end=middle)
            assert sorted(found(plan, log.topic_id, before)) == expected[:number]
            time = record.timestamp
            late = ArchiveRange(partition=log.partition, first=0, end=middle, since=time)
            early = ArchiveRange(partition=log.partition, first=middle, end=EVERYTHING, until=time)
            assert sorted(found(plan, log.topic_id, late)) == [
                each for each in expected[:number] if each[1].timestamp >= time
            ]
            assert sorted(found(plan, log.topic_id, early)) == [
                each for each in expected[number:] if each[1].timestamp < time
            ]
            since = min(offset for offset, each in expected if each.timestamp >= time)
            assert plan.offset_since(log.topic_id, log.partition, time) == since

    def now(self) -> list[Log]:
        return [Log(self.topic.id.hex(), partition) for partition in range(PARTITIONS)]


TestArchive = Archive.TestCase
TestArchive.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
