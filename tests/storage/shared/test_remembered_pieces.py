"""Readers that go on do not ask the database for each read, and see nothing that they would not see if they
asked."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.clock import ManualClock
from posthouse.storage.producers import AbortedTransaction
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.reads import found_pieces
from posthouse.storage.shared.reads.found_pieces import FoundPieces, RememberedPieces
from posthouse.storage.shared.reads.piece_reader import CheckedBatches
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow
from tests.storage.batches import append, make_topic, values_in
from tests.storage.compacted import Writer, compacted_topic, marker, put
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_member, make_shared
from tests.storage.shared.several.brokers import committed_in, until
from tests.storage.shared.test_reads_that_differ import Queries


def run(base: int, last: int, size: int = 10) -> RunRow | SegmentRow:
    return RunRow(
        log=1,
        base=base,
        last=last,
        slot=0,
        inline=base,
        object=None,
        key=None,
        object_size=None,
        pos=0,
        size=size,
        max_time=0,
        created_ms=0,
        refs=None,
    )


def found(
    *pieces: RunRow | SegmentRow,
    log: int = 1,
    until: float = 10.0,
    stable: int = 2**40,
    aborted: list[AbortedTransaction] | None = None,
) -> FoundPieces:
    return FoundPieces(log=log, pieces=pieces, stable=stable, aborted=aborted, until=until)


def test_a_window_begins_with_the_piece_that_holds_the_offset() -> None:
    pieces = found(run(0, 9), run(10, 19), run(20, 29), run(30, 39))
    assert [each.base for each in pieces.window(15, 25)] == [10, 20]
    assert [each.base for each in pieces.window(15, 1)] == [10], "at least one"
    assert pieces.window(40, 100) == []


def test_what_holds_an_offset_is_found_until_it_is_old() -> None:
    remembered = RememberedPieces()
    first, second = found(run(0, 9), run(10, 19)), found(run(50, 59))
    remembered.add(first)
    remembered.add(second)
    for offset, expected in ((0, first), (19, first), (20, None), (55, second)):
        assert remembered.get(1, offset, 10.0, with_aborted=False) is expected
    assert remembered.get(2, 0, 10.0, with_aborted=False) is None
    assert remembered.get(1, 0, 10.1, with_aborted=False) is None
    remembered.forget(1)
    assert remembered.get(1, 55, 0.0, with_aborted=False) is None


def test_a_reader_of_committed_records_uses_only_what_was_decided() -> None:
    remembered = RememberedPieces()
    remembered.add(found(run(0, 9), run(10, 19)))
    assert remembered.get(1, 0, 0.0, with_aborted=True) is None, "aborted transactions were not asked for"
    remembered.add(found(run(0, 9), run(10, 19), aborted=[], stable=12))
    assert remembered.get(1, 11, 0.0, with_aborted=True) is not None
    assert remembered.get(1, 12, 0.0, with_aborted=True) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4)), max_size=40))
def test_no_more_is_remembered_than_allowed(steps: list[tuple[int, int, int]]) -> None:
    most = 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found_pieces, "_MOST_PIECES", most)
        remembered = RememberedPieces()
        for log, base, count in steps:
            if count == 4:
                remembered.forget(log)
            else:
                remembered.add(found(*(run(base + n, base + n) for n in range(count)), log=log))
            kept = list(remembered._found.values())
            assert remembered._pieces == sum(len(each.pieces) for each in kept)
            assert remembered._pieces <= most
            assert sorted(map(id, kept)) == sorted(
                id(each) for all_of_log in remembered._by_log.values() for each in all_of_log
            )


@pytest.fixture
async def cold(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> AsyncIterator[SharedStorage]:
    """It keeps no batches in memory."""
    made = await make_shared(database, objects, clock, tail_bytes=0)
    await made.open()
    yield made
    await made.close()


async def test_a_reader_that_goes_on_asks_once(cold: SharedStorage) -> None:
    topic = make_topic()
    await cold.create_topics([topic])
    partition = topic.partition(0)
    for number in range(20):
        await cold.commit([append(partition, b"%d" % number)])
    queries = Queries(cold)
    read = [values_in((await cold.read(partition, offset, 1)).data) for offset in range(20)]
    assert read == [{number: b"%d" % number} for number in range(20)]
    assert queries.count == 1


async def test_what_comes_later_is_found(cold: SharedStorage) -> None:
    topic = make_topic()
    await cold.create_topics([topic])
    partition = topic.partition(0)
    for number in range(5):
        await cold.commit([append(partition, b"%d" % number)])
        assert values_in((await cold.read(partition, number, 1)).data) == {number: b"%d" % number}
    assert len(values_in((await cold.read(partition, 0, 2**20)).data)) == 5


async def test_compaction_of_this_broker_is_seen_at_once(cold: SharedStorage) -> None:
    topic = compacted_topic(segment_bytes="300")
    await cold.create_topics([topic])
    partition = topic.partition(0)
    for number in range(10):
        await cold.commit([put(partition, (b"key", b"%d" % number), (b"%d" % number, b"x" * 60))])
    assert len(values_in((await cold.read(partition, 0, 2**20)).data)) == 20
    await cold.compact()
    assert cold.metrics.compacted_partitions == 1
    assert b"0" not in values_in((await cold.read(partition, 0, 2**20)).data).values()


async def test_compaction_of_another_broker_in_the_middle_of_a_read_shows_no_offset_twice(
    cold: SharedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins batches: that at the next offset then begins before what was read."""
    topic = make_topic("t", 2)
    await cold.create_topics([topic])
    partition, joined = topic.partition(0), topic.partition(1)
    for number in range(3):
        await cold.commit([append(partition, b"%d" % number)])
    await cold.commit([append(joined, b"0", b"1", b"2")])
    before = bytes((await cold.read(partition, 1, 1)).data)
    after = bytes((await cold.read(joined, 0, 2**20)).data)

    async def chunks(*_: object) -> AsyncIterator[CheckedBatches]:
        yield CheckedBatches(before, 1, 2)
        yield CheckedBatches(after, 0, 3)

    monkeypatch.setattr(cold._reads, "_chunks", chunks)
    assert bytes((await cold.read(partition, 1, 2**20)).data) == before


async def test_a_transaction_that_is_aborted_later_is_not_shown(
    cold: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """A member remembers the pieces before the abort, and must not serve them without it."""
    topic = make_topic()
    await cold.create_topics([topic])
    partition = topic.partition(0)
    await cold.commit([put(partition, (b"k", b"plain"))])
    await cold.commit([put(partition, (b"k", b"aborted"), writer=Writer(1, 0))])
    member = await make_member(database, objects, clock, tail_bytes=0)
    await member.open()
    try:
        first = await member.read(partition, 0, 2**20, stable_only=True)
        assert committed_in(first) == {0: b"plain"}
        await cold.commit([marker(partition, 1, commit=False)])
        await cold.commit([put(partition, (b"k", b"last"))])
        await member.refresh([partition])
        alone = await member.read(partition, 1, 1, stable_only=True)
        assert len(alone.data) and committed_in(alone) == {}
        again = await member.read(partition, 0, 2**20, stable_only=True)
        assert committed_in(again) == {0: b"plain", 3: b"last"}
    finally:
        await member.close()


async def test_a_transaction_that_is_aborted_before_the_offset_is_not_shown_to_an_earlier_reader(
    cold: SharedStorage,
) -> None:
    """What a reader behind it has found is remembered for the whole piece, in which it lies."""
    topic = make_topic()
    await cold.create_topics([topic])
    partition = topic.partition(0)
    aborted = put(partition, (b"k", b"aborted"), writer=Writer(1, 0))
    await cold.commit(
        [aborted, marker(partition, 1, commit=False), put(partition, (b"k", b"last"))],
    )
    queries = Queries(cold)
    later = await cold.read(partition, 2, 2**20, stable_only=True)
    assert committed_in(later) == {2: b"last"}
    earlier = await cold.read(partition, 0, 2**20, stable_only=True)
    assert committed_in(earlier) == {2: b"last"}
    assert queries.count == 1, "the second read is to use what the first has found"


async def test_what_was_not_decided_when_it_was_found_is_looked_for_again(
    cold: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """The open transaction is in the same piece as what was decided, and is aborted later."""
    topic = make_topic()
    await cold.create_topics([topic])
    partition = topic.partition(0)
    await cold.commit(
        [put(partition, (b"k", b"plain")), put(partition, (b"k", b"aborted"), writer=Writer(1, 0))]
    )
    member = await make_member(database, objects, clock, tail_bytes=0)
    await member.open()
    try:
        both = len((await member.read(partition, 0, 2**20)).data)
        first = await member.read(partition, 0, 2**20, stable_only=True)
        assert committed_in(first) == {0: b"plain"}
        await cold.commit([marker(partition, 1, commit=False)])
        await member.refresh([partition])
        again = await member.read(partition, 0, both, stable_only=True)
        assert len(again.data) == both and committed_in(again) == {0: b"plain"}
    finally:
        await member.close()


async def test_a_trim_at_another_broker_is_noticed(
    cold: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Also by a reader that asks the database for nothing."""
    topic = make_topic()
    await cold.create_topics([topic])
    partition = topic.partition(0)
    for number in range(6):
        await cold.commit([append(partition, b"%d" % number)])
    member = await make_member(database, objects, clock, tail_bytes=0)
    await member.open()
    try:
        await member.read(partition, 0, 1)
        connection = await database.connect("tests")
        await connection.execute("UPDATE log SET start = 3")
        await connection.close()
        await member.read(partition, 1, 1)
        await until(lambda: member.bounds(partition).start == 3)
    finally:
        await member.close()
