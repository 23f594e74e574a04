"""What a partition remembers of its producers."""

from collections.abc import Callable
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.errors import DataDamaged, OutOfOrderSequence, ProducerFenced
from posthouse.model.ids import FIRST_KEYED, PartitionId, new_topic_id
from posthouse.records.batch import BatchHeader, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.control import build_marker, is_commit
from posthouse.storage.files.catalog.producer_rows import load, partition_key, partition_of, rows
from posthouse.storage.producers import (
    NOT_OPEN,
    REMEMBERED_BATCHES,
    AbortedTransaction,
    ProducerTable,
)

PRODUCER = 7
PARTITION = PartitionId(new_topic_id(), 3)
Rows = dict[bytes, bytes | None]


def loaded(stored: Rows) -> ProducerTable:
    table = ProducerTable()
    for key, value in stored.items():
        assert value is not None
        load(table, key, value)
    return table


def header(
    sequence: int,
    *,
    count: int = 1,
    epoch: int = 0,
    transactional: bool = False,
    producer: int = PRODUCER,
) -> BatchHeader:
    builder = BatchBuilder(
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    for _ in range(count):
        builder.add(None, b"x", (), 0)
    return parse_header(builder.build())


def marker(*, epoch: int = 0, commit: bool = True) -> BatchHeader:
    return parse_header(build_marker(PRODUCER, epoch, commit=commit, timestamp=0))


def write(table: ProducerTable, batch: BatchHeader, offset: int, *, aborts: bool = False) -> None:
    assert table.repeated(batch) is None
    table.written(PRODUCER, table.place(batch, offset, 0), offset, aborts=aborts)


def test_nothing_is_kept_of_the_failed_request_of_an_idempotency_key() -> None:
    table = ProducerTable()
    for key in range(FIRST_KEYED, FIRST_KEYED + 100):
        table.place(header(2, producer=key), 0, 0)
        with pytest.raises(OutOfOrderSequence):  # while it is being written
            table.repeated(header(4, producer=key))
    table.roll_back()
    assert table.repeated(header(4, producer=FIRST_KEYED)) is None, "another body: nothing was stored"
    assert not table._awaited


def test_a_batch_that_comes_again_gets_the_offset_it_had() -> None:
    table = ProducerTable()
    for number in range(REMEMBERED_BATCHES):
        write(table, header(number * 3, count=3), 100 + number * 3)
    for number in range(REMEMBERED_BATCHES):
        assert table.repeated(header(number * 3, count=3)) == 100 + number * 3


def test_a_batch_is_recognised_while_it_is_still_being_written() -> None:
    table = ProducerTable()
    table.place(header(0), 5, 0)
    assert table.repeated(header(0)) == 5
    assert table.repeated(header(1)) is None
    table.roll_back()
    assert table.repeated(header(0)) is None, "it was not written after all"


def test_when_the_first_batch_of_a_producer_fails_the_next_one_does_not_take_its_place() -> None:
    table = ProducerTable()
    table.place(header(0), 5, 0)
    table.place(header(1), 6, 0)
    table.roll_back()
    with pytest.raises(OutOfOrderSequence):
        table.repeated(header(1))
    write(table, header(0), 5)
    write(table, header(1), 6)


def test_a_producer_that_was_forgotten_goes_on_where_it_failed() -> None:
    table = ProducerTable()
    table.place(header(40), 5, 0)
    table.roll_back()
    assert table.repeated(header(40)) is None
    assert table.repeated(header(0, epoch=1)) is None, "or it begins anew"
    assert table.repeated(marker()) is None


def test_only_the_last_five_are_remembered() -> None:
    table = ProducerTable()
    for number in range(REMEMBERED_BATCHES + 1):
        write(table, header(number), number)
    with pytest.raises(OutOfOrderSequence):
        table.repeated(header(0))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: header(5),
        lambda: header(0, count=2),
        lambda: header(1, epoch=1),
    ],
    ids=["gap", "same start, other length", "new epoch that does not start at 0"],
)
def test_what_does_not_follow_is_refused(wrong: Callable[[], BatchHeader]) -> None:
    table = ProducerTable()
    write(table, header(0), 0)
    with pytest.raises(OutOfOrderSequence):
        table.repeated(wrong())


def test_a_new_epoch_starts_at_zero_and_fences_the_old() -> None:
    table = ProducerTable()
    write(table, header(0), 0)
    write(table, header(0, epoch=1), 1)
    with pytest.raises(ProducerFenced):
        table.repeated(header(1))


def test_a_producer_that_is_not_known_may_start_anywhere() -> None:
    assert ProducerTable().repeated(header(1234)) is None


def test_sequences_wrap() -> None:
    table = ProducerTable()
    write(table, header(2**31 - 2, count=2), 0)
    assert table.repeated(header(0)) is None
    write(table, header(0), 2)
    assert table.repeated(header(2**31 - 2, count=2)) == 0
    across = ProducerTable()
    write(across, header(2**31 - 1, count=3), 0)
    assert across.repeated(header(2)) is None


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    table = ProducerTable()
    write(table, header(0, transactional=True), 10)
    write(table, header(1, transactional=True), 11)
    assert table.first_open() == 10
    write(table, marker(), 12)
    assert table.first_open() is None
    assert table.aborted_between(0, 100) == []
    write(table, header(2, transactional=True), 13)
    assert table.first_open() == 13


def test_aborted_transactions_are_listed_where_they_reach() -> None:
    table = ProducerTable()
    write(table, header(0, transactional=True), 10)
    write(table, marker(commit=False), 15, aborts=True)
    aborted = [AbortedTransaction(PRODUCER, 10, 15)]
    assert table.aborted_between(0, 10) == []
    assert table.aborted_between(0, 11) == aborted
    assert table.aborted_between(15, 20) == aborted
    assert table.aborted_between(16, 20) == []
    table.trim(15)
    assert table.aborted_between(0, 20) == aborted
    table.trim(16)
    assert table.aborted_between(0, 20) == []


def test_a_marker_without_records_aborts_nothing() -> None:
    table = ProducerTable()
    write(table, marker(commit=False), 3, aborts=True)
    assert table.aborted_between(0, 100) == []


def test_a_marker_with_a_new_epoch_fences() -> None:
    table = ProducerTable()
    write(table, header(0, transactional=True), 0)
    write(table, marker(epoch=1, commit=False), 1, aborts=True)
    with pytest.raises(ProducerFenced):
        table.repeated(header(1, transactional=True))
    assert table.repeated(header(0, epoch=1)) is None


def test_silent_producers_are_forgotten_unless_something_is_open() -> None:
    table = ProducerTable()
    table.written(1, table.place(header(0)._replace(producer_id=1), 0, 1000), 0)
    opened = header(0, transactional=True)._replace(producer_id=2)
    table.written(2, table.place(opened, 1, 1000), 1)
    table.expire(1001)
    assert table.get(1) is None
    assert table.get(2) is not None
    table.expire(10_000)
    assert table.get(2) is not None


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from(["batch", "commit", "abort"])),
        max_size=30,
    )
)
def test_stored_and_read_again_it_is_the_same(steps: list[tuple[int, bool, str]]) -> None:
    table = ProducerTable()
    sequences = dict.fromkeys(range(4), 0)
    for offset, (producer, transactional, kind) in enumerate(steps):
        if kind == "batch":
            batch = header(sequences[producer], transactional=transactional)._replace(producer_id=producer)
            sequences[producer] += 1
        else:
            batch = marker(commit=kind == "commit")._replace(producer_id=producer)
        table.written(producer, table.place(batch, offset, offset), offset, aborts=kind == "abort")
    again = loaded(rows(PARTITION, table.take_changes()))
    assert not table.is_changed and not again.is_changed
    assert again.active() == table.active()
    assert again.first_open() == table.first_open()
    assert again.aborted_between(0, 1000) == table.aborted_between(0, 1000)
    opened = [each.open_since for each in table.active().values() if each.open_since != NOT_OPEN]
    assert table.first_open() == min(opened, default=None)


def test_markers_say_what_they_are() -> None:
    assert is_commit(build_marker(1, 0, commit=True, timestamp=5))
    assert not is_commit(build_marker(1, 0, commit=False, timestamp=5))


def test_keys_of_tables() -> None:
    partition = PartitionId(new_topic_id(), 77)
    assert partition_of(partition_key(partition)) == partition


def same(one: ProducerTable, other: ProducerTable) -> bool:
    aborted = one.aborted_between(0, 10**6) == other.aborted_between(0, 10**6)
    return one.active() == other.active() and aborted and one.first_open() == other.first_open()


def test_only_what_changed_is_stored_again() -> None:
    table = ProducerTable()
    for id in range(1000):
        batch = header(0)._replace(producer_id=id)
        table.written(id, table.place(batch, id, 0), id)
    stored = rows(PARTITION, table.take_changes())
    assert len(stored) == 1000 / 64 + 0.375
    batch = header(1)._replace(producer_id=500)
    table.written(500, table.place(batch, 1000, 0), 1000)
    changed = rows(PARTITION, table.take_changes())
    assert len(changed) == 1 and changed.keys() <= stored.keys()
    assert sum(len(value or b"") for value in changed.values()) < 100 * 64
    assert same(loaded(stored | changed), table)


def test_what_is_forgotten_is_removed() -> None:
    table = ProducerTable()
    write(table, header(0, transactional=True), 0)
    write(table, marker(commit=False), 1, aborts=True)
    stored = rows(PARTITION, table.take_changes())
    table.trim(2)
    table.expire(1)
    assert rows(PARTITION, table.take_changes()) == dict.fromkeys(stored)
    assert not table.is_changed


def test_changes_that_were_not_stored_come_again() -> None:
    table = ProducerTable()
    write(table, header(0, transactional=True), 0)
    write(table, marker(commit=False), 1, aborts=True)
    changes = table.take_changes()
    write(table, header(1), 2)
    table.put_back(changes)
    assert same(loaded(rows(PARTITION, table.take_changes())), table)


WHOLE = (
    Struct(">I").pack(2)
    + Struct(">qhqqB").pack(5, 0, 1000, NOT_OPEN, 1)
    + Struct(">iiq").pack(0, 9, 100)
    + Struct(">qhqqB").pack(700, 2, 1000, 120, 0)
    + Struct(">I").pack(1)
    + Struct(">qqq").pack(5, 30, 40)
)
"""A partition as format 1 stored it."""


def test_a_row_of_format_1_gives_way_to_others_with_the_first_change() -> None:
    key = partition_key(PARTITION)
    table = loaded({key: WHOLE})
    assert set(table.active()) == {5, 700} and table.first_open() == 120
    assert table.aborted_between(0, 100) == [AbortedTransaction(5, 30, 40)]
    assert not table.is_changed
    batch = header(10)._replace(producer_id=5)
    table.written(5, table.place(batch, 130, 0), 130)
    stored = rows(PARTITION, table.take_changes())
    assert stored.pop(key, b"") is None
    assert same(loaded(stored), table)
    assert rows(PARTITION, table.removal()).keys() == stored.keys()


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_row_that_is_cut_off_is_damaged(cut: int) -> None:
    with pytest.raises(DataDamaged):
        load(ProducerTable(), partition_key(PARTITION), WHOLE[:cut])
