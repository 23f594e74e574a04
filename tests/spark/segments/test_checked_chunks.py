"""Batches of segments: whole and checked, however the bytes come; no damage gets through."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.client.manifests import SegmentObject
from posthouse.records.batch import DAMAGE_BIT, iter_headers, stamp
from posthouse.records.record import Record, iter_records
from posthouse.records.spans import filler
from posthouse.spark.segments import batches, prefetch
from posthouse.spark.segments.batches import checked_chunks
from posthouse.spark.segments.errors import ObjectDamaged, ObjectError, ObjectStale
from tests.storage.batches import make_batch

HEAD = b"header of a segment file"


class Objects:
    """Objects in memory, by key."""

    def __init__(self, **stored: bytes) -> None:
        self.stored = stored
        self.reads: list[tuple[str, int, int]] = []

    def origin(self, address: str) -> str:
        return "memory"

    def read(self, address: str, start: int, size: int) -> bytes:
        self.reads.append((address, start, size))
        if address not in self.stored:
            raise ObjectStale(address)
        return self.stored[address][start : start + size]

    def close(self) -> None:
        """Nothing is open."""


def batch(offset: int, *values: bytes) -> bytes:
    made = make_batch(*values)
    stamp(memoryview(made), offset, 0)
    return bytes(made)


def image(first: int, sizes: list[int]) -> tuple[bytes, int]:
    """Batches with as many records each, and the offset behind them."""
    data = b""
    for size in sizes:
        data += batch(first, *[b"%d" % (first + number) for number in range(size)])
        first += size
    return data, first


def segment(address: str, data: bytes, base: int, end: int) -> SegmentObject:
    return SegmentObject(
        address=address, start=len(HEAD), size=len(data), base=base, last=end - 1, generation=0
    )


def values(objects: Objects, *segments: SegmentObject) -> dict[int, bytes | None]:
    return {
        record.offset: record.value
        for chunk in checked_chunks(objects, segments)
        for record in _records(bytes(chunk.data))
    }


def _records(data: bytes) -> list[Record]:
    return [
        record
        for position, header in iter_headers(data)
        for record in iter_records(data[position : position + header.length])
    ]


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(SIZES, SIZES, st.integers(1, 400), st.integers(1, 1000))
def test_windows_of_any_size(one: list[int], two: list[int], window: int, ahead: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefetch, "WINDOW_BYTES", window)
        patch.setattr(batches, "windows", lambda found: prefetch.windows(found, window))
        patch.setattr(
            batches, "fetched", lambda source, wanted: prefetch.fetched(source, wanted, ahead_bytes=ahead)
        )
        first, middle = image(5, one)
        second, end = image(middle, two)
        objects = Objects(a=HEAD + first + b"more", b=HEAD + second)
        found = values(objects, segment("a", first, 5, middle), segment("b", second, middle, end))
    assert found == {offset: b"%d" % offset for offset in range(5, end)}
    assert sum(size for _, _, size in objects.reads) == len(first) + len(second), "each byte once"


@given(SIZES, st.data())
def test_no_flipped_bit_changes_a_record(sizes: list[int], data: st.DataObject) -> None:
    content, end = image(5, sizes)
    at = data.draw(st.integers(0, len(content) * 8 - 1))
    flipped = bytearray(content)
    flipped[at // 8] ^= 1 << at % 8
    objects = Objects(a=HEAD + bytes(flipped))
    try:
        found = values(objects, segment("a", content, 5, end))
    except ObjectDamaged:
        return
    assert found == {offset: b"%d" % offset for offset in range(5, end)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda content: content[:-1] + b"\1", "checksum"),
        (lambda content: content[: len(content) // 2], "end before offset"),
        (lambda content: b"\0" * len(content), "behind offset None"),
        (lambda content: batch(6, b"other") + content, "is not where it should be"),
        (lambda content: batch(5, b"5") + batch(7, b"7"), "offset 7 is not where it should be"),
        (lambda content: b"", "end before offset"),
    ],
)
def test_an_object_with_other_content(change: Callable[[bytes], bytes], complaint: str) -> None:
    content, end = image(5, [2, 2])
    other = change(content)
    objects = Objects(a=HEAD + other + b"\0" * len(content))
    found = SegmentObject(
        address="a", start=len(HEAD), size=max(len(other), 1), base=5, last=end - 1, generation=0
    )
    with pytest.raises(ObjectDamaged, match=complaint):
        list(checked_chunks(objects, [found]))


def test_what_comes_before_a_failure_is_read() -> None:
    content, end = image(5, [2, 2])
    objects = Objects(a=HEAD + content)
    chunks = checked_chunks(objects, [segment("a", content, 5, end), segment("gone", content, end, end + 4)])
    assert (next(chunks).base, end) == (5, 9)
    with pytest.raises(ObjectError, match="gone"):
        next(chunks)


def test_records_that_were_damaged_before_are_left_to_the_broker() -> None:
    """It says what is lost."""
    content = b"".join(filler(5, 9, DAMAGE_BIT))
    with pytest.raises(ObjectDamaged, match="were damaged before"):
        list(checked_chunks(Objects(a=HEAD + content), [segment("a", content, 5, 9)]))
