"""The sparse index: what it finds, and what it does with bytes that are not its own."""

from hypothesis import given
from hypothesis import strategies as st

from posthouse.storage.files.segments.index import SparseIndex, decode_blocks

BATCHES = st.lists(
    st.tuples(st.integers(1, 5), st.integers(61, 300), st.integers(-1, 1000)), min_size=1, max_size=30
)


def build(
    batches: list[tuple[int, int, int]], interval: int
) -> tuple[SparseIndex, list[tuple[int, int, int]]]:
    index = SparseIndex(interval)
    placed = []
    offset = position = 0
    for count, length, timestamp in batches:
        index.add(offset, position, length, timestamp)
        placed.append((offset, position, timestamp))
        offset += count
        position += length
    return index, placed


@given(BATCHES, st.sampled_from([0, 64, 500]))
def test_positions_lie_at_or_before_what_is_looked_for(
    batches: list[tuple[int, int, int]], interval: int
) -> None:
    index, placed = build(batches, interval)
    starts = {position: offset for offset, position, _ in placed}
    for offset, position, _ in placed:
        found = index.position_of(offset)
        assert found in starts and found <= position
        assert index.offset_at(found, -1) == starts[found]
        assert interval or found == position
        assert index.boundary_before(position) <= position
    for wanted in {time for _, _, time in placed}:
        first = next(position for _, position, time in placed if time >= wanted)
        assert index.position_of_time(wanted) <= first


@given(BATCHES, st.sampled_from([0, 64, 500]), st.lists(st.integers(0, 29), max_size=4))
def test_blocks_add_up_to_the_whole_index(
    batches: list[tuple[int, int, int]], interval: int, cuts: list[int]
) -> None:
    index = SparseIndex(interval)
    data = b""
    offset = position = 0
    for number, (count, length, timestamp) in enumerate(batches):
        index.add(offset, position, length, timestamp)
        offset += count
        position += length
        if number in cuts:
            data += index.take_block(0)
    data += index.take_block(0)
    decoded, whole = decode_blocks(data, interval, position, 0)
    assert whole and decoded.entries() == index.entries()
    assert (decoded.covered, decoded.max_timestamp) == (index.covered, index.max_timestamp)


@given(BATCHES, st.data())
def test_any_change_is_noticed(batches: list[tuple[int, int, int]], data: st.DataObject) -> None:
    index, _ = build(batches, 0)
    block = index.take_block(0)
    at = data.draw(st.integers(0, len(block) - 1))
    changed = block[:at] + bytes([block[at] ^ data.draw(st.integers(1, 255))]) + block[at + 1 :]
    decoded, whole = decode_blocks(changed, 0, index.covered, 0)
    assert not whole and not decoded.entries()
    decoded, whole = decode_blocks(block[:at], 0, index.covered, 0)
    assert decoded.covered < index.covered


def test_an_index_in_two_parts_answers_like_one() -> None:
    batches = [(1, 100, number % 7) for number in range(20)]
    whole, placed = build(batches, 150)
    earlier, _ = build(batches[:9], 150)
    later = SparseIndex(150, earlier.covered, earlier.max_timestamp)
    for offset, position, timestamp in placed[9:]:
        later.add(offset, position, 100, timestamp)
    assert not later.is_complete
    later.prepend(earlier)
    assert later.is_complete
    for offset, position, _ in placed:
        assert position - later.position_of(offset) <= 200
        assert later.position_of_time(offset % 7) <= whole.position_of_time(offset % 7) + 200
