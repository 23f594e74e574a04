"""Progress against a plain set of settled positions."""

from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.progress.chunk import CHUNK
from posthouse.broker.progress.progress import Progress
from tests.broker.progress.stored_progress import LANE, QUEUE, keep, reloaded

POSITIONS = st.integers(0, 3 * CHUNK)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("settle"), st.integers(0, 40)),
        st.tuples(st.just("settle"), POSITIONS),
        st.tuples(st.just("range"), POSITIONS, st.integers(0, 2 * CHUNK)),
        st.tuples(st.just("unsettle"), st.integers(0, 10_000)),
        st.tuples(st.just("back"), POSITIONS),
        st.tuples(st.just("store")),
        st.tuples(st.just("lost")),
        st.tuples(st.just("reload")),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_is_a_set_of_settled_positions(steps: list[tuple[object, ...]]) -> None:
    progress, settled, deliveries = Progress(QUEUE, LANE), set[int](), dict[int, int]()
    state: dict[bytes, bytes] = {}
    for name, *numbers in steps:
        match name, numbers:
            case "settle", [int(position)]:
                assert progress.settle(position) == (position not in settled)
                settled.add(position)
                deliveries.pop(position, None)
            case "range", [int(first), int(count)]:
                progress.settle_range(first, first + count)
                settled |= set(range(first, first + count))
            case "unsettle", [int(number)] if settled:
                position = sorted(settled)[number % len(settled)]
                progress.unsettle(position)
                settled.discard(position)
                deliveries.pop(position, None)
            case "back", [int(position)] if position not in settled:
                assert progress.came_back(position) == deliveries.get(position, 0) + 1
                deliveries[position] = deliveries.get(position, 0) + 1
            case "store", []:
                keep(state, progress.puts())
            case "lost", []:
                progress.puts()
                progress.not_stored()
            case "reload", []:
                keep(state, progress.puts())
                progress = reloaded(state)
        floor = next(position for position in range(len(settled) + 1) if position not in settled)
        assert progress.floor == floor
        assert progress.settled_above == len(settled) - floor
    for position in range(0, 3 * CHUNK, 7):
        assert progress.is_settled(position) == (position in settled)
    for position, count in deliveries.items():
        if position not in settled:
            assert progress.deliveries(position) == count


def test_a_straggler_costs_little() -> None:
    progress = Progress(QUEUE, 0)
    progress.settle_range(1, 10_000_000)
    assert progress.floor == 0
    assert progress.settled_above == 9_999_999
    assert len({id(chunk.settled) for chunk in progress._chunks.values()}) <= 3, (
        "full chunks share their bytes"
    )
    progress.puts()
    assert progress.settle(0)
    assert progress.floor == 10_000_000
    removed = [put for put in progress.puts() if put.value is None]
    assert len(removed) >= 10_000_000 // CHUNK


def test_everything_of_it_can_be_removed() -> None:
    state: dict[bytes, bytes] = {}
    progress = Progress(QUEUE, LANE)
    progress.settle(5)
    progress.came_back(9_000)
    keep(state, progress.puts())
    assert len(state) == 3
    keep(state, progress.removals())
    assert state == {}
