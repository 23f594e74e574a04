"""Rows go to the partitions of their keys, in C and in Python."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.records.column_batches import group_rows, partitions_of
from posthouse.records.columns import Kernel
from posthouse.records.partitioner import partition_of
from tests.examples import examples
from tests.records.column_rows import binary_column, kernels


@kernels
@settings(max_examples=examples(150), deadline=None)
@given(
    keys=st.lists(st.none() | st.binary(max_size=40), max_size=40),
    partitions=st.integers(1, 2**31 - 1) | st.integers(1, 12),
    start=st.integers(0, 9),
    wide=st.booleans(),
)
def test_partitions_are_those_of_single_keys(
    kernel: Kernel, keys: list[bytes | None], partitions: int, start: int, wide: bool
) -> None:
    column = binary_column(keys, start=start, wide=wide)
    chosen = memoryview(partitions_of(column, len(keys), partitions, 5, kernel)).cast("B").cast("i")
    assert list(chosen) == [5 if key is None else partition_of(key, partitions) for key in keys]


@kernels
def test_partitions_of_no_partitions_are_refused(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="one partition"):
        partitions_of(binary_column([b"a"]), 1, 0, 0, kernel)
    with pytest.raises(IndexError):
        partitions_of(binary_column([b"a"]), 2, 3, 0, kernel)


@kernels
@given(numbers=st.lists(st.integers(0, 6)))
def test_rows_are_grouped_in_order(kernel: Kernel, numbers: list[int]) -> None:
    groups = group_rows(array("i", numbers).tobytes(), 7, kernel)
    assert [list(memoryview(group).cast("B").cast("i")) for group in groups] == [
        [row for row, number in enumerate(numbers) if number == group] for group in range(7)
    ]


@kernels
@pytest.mark.parametrize("number", [-1, 3])
def test_a_group_that_is_not_there_is_refused(kernel: Kernel, number: int) -> None:
    with pytest.raises(IndexError):
        group_rows(array("i", [0, number]).tobytes(), 3, kernel)
