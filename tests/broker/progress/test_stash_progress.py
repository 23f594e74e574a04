"""How it is kept which messages were put aside."""

from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.broker.progress.chunk import CHUNK
from posthouse.broker.progress.progress import Progress
from posthouse.broker.progress.stash import Stashed
from posthouse.model.ids import TopicId
from tests.broker.progress.stored_progress import LANE, QUEUE, keep, reloaded

TOPIC = TopicId(b"t" * 16)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["settle", "aside", "back"]), st.integers(0, 60)),
        st.tuples(st.sampled_from(["settle", "aside"]), st.integers(0, 2 * CHUNK)),
        st.tuples(st.just("range"), st.integers(0, 60), st.integers(0, 2 * CHUNK)),
        st.tuples(st.just("unsettle"), st.integers(0, 10_000)),
        st.tuples(st.sampled_from(["store", "lost", "reload"])),
    ),
    max_size=60,
)


@given(STEPS)
def test_progress_with_a_stash(steps: list[tuple[object, ...]]) -> None:
    progress, done, aside, deliveries = Progress(QUEUE, LANE), set[int](), set[int](), dict[int, int]()
    recently: set[int] = set()
    state: dict[bytes, bytes] = {}
    for name, *given_numbers in steps:
        match name, given_numbers:
            case "settle", [int(position)]:
                assert progress.settle(position) == (position not in done)
                done.add(position)
                recently.add(position)
            case "aside", [int(position)] if position not in done | aside:
                progress.put_aside(position, Stashed(position + 7, 0, 1, TOPIC))
                aside.add(position)
            case "back", [int(position)] if position not in done:
                deliveries[position] = deliveries.get(position, 0) + 1
                assert progress.came_back(position) == deliveries[position]
            case "range", [int(first), int(count)]:
                progress.settle_range(first, first + count)
                done |= set(range(first, first + count)) - aside
            case "unsettle", [int(number)] if recently:
                position = sorted(recently)[number % len(recently)]
                progress.unsettle(position)
                recently.discard(position)
                done.discard(position)
                if position not in aside:
                    deliveries.pop(position, None)
            case "store", []:
                keep(state, progress.puts())
            case "lost", []:
                progress.puts()
                progress.not_stored()
            case "reload", []:
                keep(state, progress.puts())
                progress = reloaded(state)
                recently.clear()
        live = aside - done
        counted = done | aside
        floor = next(position for position in range(len(counted) + 1) if position not in counted)
        assert progress.floor == floor
        assert progress.settled_above == len(counted) - floor
        assert set(progress.stash) == live
    for position in live if steps else ():
        assert progress.deliveries(position) == deliveries.get(position, 0)
        assert progress.stash[position].offset == position + 7
    keep(state, progress.puts())
    assert set(reloaded(state).stash) == set(progress.stash)
    keep(state, progress.removals())
    assert state == {}


@settings(deadline=None)
@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 3)), st.integers(0, 20))
def test_where_stragglers_end(singles: set[int], chunks: set[int], most: int) -> None:
    progress = Progress(QUEUE, 0)
    settled = singles | {at for chunk in chunks for at in range(chunk * CHUNK, (chunk + 1) * CHUNK)}
    for position in singles:
        progress.settle(position)
    for chunk in chunks:
        progress.settle_range(chunk * CHUNK, (chunk + 1) * CHUNK)
    unsettled = [at for at in range(5 * CHUNK) if at not in settled]
    floor = unsettled[0]
    ends = [
        at + 1
        for at in sorted(settled)
        if at > floor and sum(floor <= each < at for each in unsettled[: most + 2]) <= most
    ]
    end, found = progress.stragglers(most)
    assert end == max(ends, default=floor)
    assert found == sum(each < end for each in unsettled)
    assert progress.unsettled(end, 10_000) == [each for each in unsettled if each < end]
