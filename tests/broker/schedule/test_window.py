"""The window: the first keys, never more than its limit."""

from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.schedule import keys
from posthouse.broker.schedule.window import ScheduleWindow


def key(due: int, log: int = 0) -> bytes:
    return keys.pack(due, bytes(8), log, due, 1)


@given(st.lists(st.integers(0, 1000), unique=True), st.integers(2, 20), st.integers(0, 20))
def test_the_first_ones_stay(dues: list[int], limit: int, late: int) -> None:
    window = ScheduleWindow(limit)
    window.late = min(late, limit - 1)
    lowest_dropped = keys.END
    for due in dues:
        lowest_dropped = min(lowest_dropped, *window.add(key(due)), keys.END)
        assert len(window) <= limit
        lowest = min(map(key, dues[: dues.index(due) + 1]))
        assert window.first == lowest, "the very first never goes"
    left = []
    while window.first is not None:
        left.append(window.pop())
    before = [each for each in left if each < lowest_dropped]
    assert before == sorted(map(key, dues))[: len(before)]
    assert not dues or before


def test_a_log_is_forgotten_from_a_bound_on() -> None:
    window = ScheduleWindow(10)
    for due in range(4):
        window.add(key(due, log=due % 2))
    assert window.forget(1, key(2)) == 1
    assert [keys.due_of(window.pop()) for _ in range(3)] == [0, 1, 2]


def test_room_is_made_for_what_is_late() -> None:
    window = ScheduleWindow(4)
    for due in range(4):
        window.add(key(due))
    assert [keys.due_of(each) for each in window.make_room()] == [2, 3]
    assert window.make_room() == ()


def test_keys_sort_by_time_then_arrival() -> None:
    first = keys.pack(5, (1).to_bytes(8, "big"), 9, 9, 9)
    second = keys.pack(5, (2).to_bytes(8, "big"), 0, 0, 0)
    assert keys.before(5) < first < second < keys.before(6) < keys.END
    assert keys.unpack(first) == (5, (1).to_bytes(8, "big"), 9, 9, 9)
    assert (keys.due_of(first), keys.log_of(first), keys.size_of(first)) == (5, 9, 9)
