"""Batches of references: what is built can be read, and takes as many offsets as it refers to records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.errors import CorruptBatch
from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import LEADER_EPOCH, NO_TIMESTAMP, parse_header, stamp, validate_produced
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import iter_records
from posthouse.records.references import (
    NEVER,
    Reference,
    build_references,
    iter_references,
    references_batch,
)

references = st.builds(
    Reference,
    partition=st.builds(
        PartitionId, st.binary(min_size=16, max_size=16).map(TopicId), st.integers(0, 2**31 - 1)
    ),
    first=st.integers(0, 2**63 - 1),
    count=st.integers(1, 10_000),
    expires_ms=st.just(NEVER) | st.integers(1, 2**63 - 1),
    size=st.integers(0, 2**63),
)


@given(st.lists(references, min_size=1, max_size=50), st.integers(0, 2**50))
def test_references_come_back_with_their_positions(made: list[Reference], base: int) -> None:
    data = build_references(made)
    stamp(data, base, 0)
    header = parse_header(data)
    assert header.next_offset == base + sum(each.count for each in made)
    expiring = [each.expires_ms for each in made if each.expires_ms != NEVER]
    assert header.base_timestamp == header.max_timestamp == min(expiring, default=NO_TIMESTAMP)
    found = list(iter_references(data, header))
    assert [each for _, each in found] == made
    position = base
    for at, each in found:
        assert at == position
        position += each.count


@given(st.lists(references, min_size=1, max_size=50), st.integers(0, 2**50))
def test_a_stored_value_makes_the_same_batch(made: list[Reference], base: int) -> None:
    data = build_references(made)
    [record] = iter_records(data)
    stamp(data, base, LEADER_EPOCH)
    assert references_batch(record.value or b"", base) == data


@pytest.mark.parametrize("value", [b"", bytes(47), bytes(49), bytes(48)])
def test_a_value_that_is_not_one_of_references_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptBatch, match="at 7 are not references"):
        references_batch(value, 7)


def test_the_checksum_is_right() -> None:
    data = build_references([Reference(PartitionId(TopicId(bytes(16)), 0), 0, 1, NEVER, 5)])
    assert validate_produced(data, max_bytes=1000).count == 1


@pytest.mark.parametrize("cut", [1, 47])
def test_references_that_are_cut_off(cut: int) -> None:
    whole = build_references([Reference(PartitionId(TopicId(bytes(16)), 0), 0, 1, NEVER, 5)])
    [(_, reference)] = iter_references(whole, parse_header(whole))
    builder = BatchBuilder()
    builder.add(None, bytes(48 + cut), timestamp=1)
    data = builder.build()
    with pytest.raises(CorruptBatch):
        list(iter_references(data, parse_header(data)))
    assert reference.size == 5
