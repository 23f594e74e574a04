"""A log as a cache of what several brokers write: outcomes, news and hints in any order."""

from hypothesis import given
from hypothesis import strategies as st

from posthouse.storage.bounds import Bounds
from posthouse.storage.shared.logs.shared_log import SharedLog, TailBatch
from tests.storage.batches import append, make_topic

PARTITION = make_topic().partition(0)
SIZE = append(PARTITION, b"x").header.length


def log() -> SharedLog:
    return SharedLog(1, PARTITION, "orders")


def batch(base: int) -> TailBatch:
    made = append(PARTITION, b"x")
    return TailBatch(made.batch, made.header._replace(base_offset=base))


def tail(log: SharedLog) -> list[int]:
    return [each.header.base_offset for each in log.tail_from(log.tail_start)]


def test_own_batches_without_a_gap() -> None:
    made = log()
    assert [made.append(batch(base)) for base in range(3)] == [0, 0, 0]
    assert (made.bounds, made.size, made.is_current) == (Bounds(0, 3, 3), 3 * SIZE, True)
    assert tail(made) == [0, 1, 2]


def test_batches_of_others_before_an_own_one() -> None:
    made = log()
    made.append(batch(0))
    assert made.append(batch(5), 3) == SIZE, "a tail has no gap"
    assert (made.bounds, made.is_current) == (Bounds(0, 6, 3), False)
    assert tail(made) == [5]
    made.observe(0, 6, 6 * SIZE, None)
    assert (made.bounds, made.size, made.is_current) == (Bounds(0, 6, 6), 6 * SIZE, True)


def test_a_transaction_that_began_behind_the_batch_in_the_same_call() -> None:
    made = log()
    made.append(batch(0), 1)
    assert made.bounds == Bounds(0, 1, 1)
    made.append(batch(1), 1)
    assert made.bounds == Bounds(0, 2, 1)
    made.append(batch(2))
    assert made.bounds == Bounds(0, 3, 3)


def test_an_outcome_behind_news_that_include_it() -> None:
    made = log()
    made.append(batch(0))
    made.observe(0, 4, 4 * SIZE, 2)
    made.append(batch(1))
    assert (made.bounds, made.size) == (Bounds(0, 4, 2), 4 * SIZE)
    assert tail(made) == [0, 1]


def test_news_from_before_an_outcome() -> None:
    made = log()
    for base in range(3):
        made.append(batch(base))
    made.observe(0, 2, 2 * SIZE, 1)
    assert (made.bounds, made.size) == (Bounds(0, 3, 3), 3 * SIZE)
    made.observe(1, 2, SIZE, None)
    assert made.bounds == Bounds(1, 3, 3)


def test_an_open_transaction_of_another_broker_stays_open_behind_own_batches() -> None:
    made = log()
    made.observe(0, 3, 3 * SIZE, 2)
    made.append(batch(3), 2)
    assert made.bounds == Bounds(0, 4, 2)


def test_a_hint_is_less_than_news() -> None:
    made = log()
    made.hint(0, 5, 9)
    assert (made.bounds, made.is_current) == (Bounds(0, 5, 5), False)
    made.hint(7, 6, 0)
    assert made.bounds == Bounds(7, 7, 7), "a start behind the end is an end, too"


events = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 20)),
    st.tuples(st.just("trim"), st.integers(0, 20)),
    st.tuples(st.just("hint"), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)),
    st.tuples(st.just("observe"), st.integers(0, 10), st.integers(10, 20), st.none() | st.integers(0, 20)),
)


@given(sequence=st.lists(events, max_size=20))
def test_bounds_never_go_back_and_a_tail_has_no_gap(sequence: list[tuple[str, int, int, int | None]]) -> None:
    made = log()
    for name, *values in sequence:
        before = made.bounds
        match name, values:
            case "append", [int(base)]:
                made.append(batch(base))
            case "trim", [int(offset)]:
                made.trim(offset)
            case "hint", [int(start), int(end), int(stable)]:
                made.hint(start, end, stable)
            case "observe", [int(start), int(end), first_open]:
                made.observe(start, end, 100, first_open)
        bounds = made.bounds
        assert bounds.start >= before.start and bounds.end >= before.end and bounds.stable >= before.stable
        assert bounds.start <= bounds.end
        assert made.size >= 0
        assert tail(made) == list(range(made.tail_start, made.tail_end))
