"""However many messages wait, only so many are known in memory."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from posthouse.broker import stored_records
from posthouse.broker.schedule import firing, loading, reading
from posthouse.broker.schedule.keys import END, log_of
from posthouse.broker.schedule.window import ScheduleWindow
from tests.broker.schedule.office import HOUR, SECOND, Office, message

MANY = 600
WINDOW = 16


@pytest.fixture
def most_loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The most that was ever loaded, looked at whenever something is added."""
    most = [0]
    add, is_full = ScheduleWindow.add, ScheduleWindow.is_full

    def watched(self: ScheduleWindow, key: bytes) -> Sequence[bytes]:
        dropped = add(self, key)
        most[0] = max(most[0], len(self))
        return dropped

    def look(self: ScheduleWindow) -> bool:
        most[0] = max(most[0], len(self))
        return bool(is_full.__get__(self, ScheduleWindow))

    monkeypatch.setattr(ScheduleWindow, "add", watched)
    monkeypatch.setattr(ScheduleWindow, "is_full", property(look))
    monkeypatch.setattr(stored_records, "PIECE_BYTES", 500)
    return most


@pytest.mark.parametrize("spread", [1, 20, 800, 5 * SECOND, 3 * HOUR])
@pytest.mark.parametrize("order", ["rising", "falling", "random"])
async def test_the_window_is_never_exceeded(
    office: Office, most_loaded: list[int], spread: int, order: str
) -> None:
    """All due at once, or in one log, or in many; in order or not."""
    office.schedule._window.limit = WINDOW
    delays = [HOUR + number * spread // MANY for number in range(MANY)]
    if order == "falling":
        delays.reverse()
    elif order == "random":
        random.Random(spread).shuffle(delays)
    bodies: list[bytes] = []
    for first in range(0, MANY, 50):
        bodies += await office.delay(*delays[first : first + 50])
    await office.advance(HOUR - 1)
    assert await office.sent() == []
    while office.schedule.waiting:
        await office.advance(max(spread // 10, 1))
    expected = sorted(zip(delays, range(MANY), bodies, strict=True))
    assert await office.sent() == [body for _, _, body in expected]
    assert 0 < most_loaded[0] <= WINDOW


async def test_a_backlog_of_many_logs(office: Office, most_loaded: list[int]) -> None:
    """As after a long time of not running."""
    office.schedule._window.limit = WINDOW
    chance = random.Random(1)
    delays = [chance.randrange(3 * HOUR) for _ in range(MANY)]
    bodies = await office.delay(*delays)
    await office.advance(4 * HOUR)
    assert await office.sent() == [
        body for _, _, body in sorted(zip(delays, range(MANY), bodies, strict=True))
    ]
    assert most_loaded[0] <= WINDOW


async def test_latecomers_count_too(office: Office, most_loaded: list[int]) -> None:
    office.schedule._window.limit = WINDOW
    await office.delay(*range(100, 100 + MANY))
    await office.advance(350)
    await office.delay(*range(-MANY, 0))
    await office.advance(350)
    assert len(await office.sent()) == 2 * MANY
    assert most_loaded[0] <= WINDOW


async def test_large_messages_are_not_sent_all_at_once(office: Office) -> None:
    now = office.clock.now_ms()
    sizes = [60_000, 30_000, 20_000, 200_000, 10, 10, 99_000]
    bodies = [b"%d" % number + b"." * size for number, size in enumerate(sizes)]
    await office.publish([message(now + 100 + number, body) for number, body in enumerate(bodies)])
    await office.advance(SECOND)
    assert [[len(body) // 1000 for body in sent] for sent in office.sent_at_once] == [
        [60, 30],
        [20],
        [200],
        [0, 0, 99],
    ]
    now = office.clock.now_ms()
    await office.publish([message(now - number, body) for number, body in enumerate(bodies)])
    office.sent_at_once.clear()
    await office.schedule.fire_due()
    assert len(office.sent_at_once) >= 4, "late ones neither"


async def test_a_later_log_does_not_overtake_one_that_is_not_all_loaded(office: Office) -> None:
    office.schedule._window.limit = WINDOW
    office.clock.jump(-office.clock.now_ms() % 1024)  # to the begin of a period
    first = await office.delay(*range(900, 1000))
    second = await office.delay(1024, 1030)
    for _ in range(8):
        await office.advance(100)
    logs = {log_of(key) for key in office.schedule._window.upcoming(END)}
    assert len(logs) == 2, "the next one is loaded ahead of its time"
    await office.advance(SECOND)
    assert await office.sent() == first + second


async def test_a_log_that_does_not_fit_is_not_asked_for_again_and_again(office: Office) -> None:
    office.schedule._window.limit = WINDOW
    office.clock.jump(-office.clock.now_ms() % 1024)
    start = office.clock.now_ms()
    bodies = await office.delay(*range(900, 1000), *range(1100, 1200))
    await office.advance(850)
    assert office.schedule._next_ms() == start + 900, "though the next period opens before that"
    await office.advance(SECOND)
    assert await office.sent() == bodies


async def test_a_log_of_a_long_period_that_was_loaded_is_not_moved(office: Office) -> None:
    """It had few entries, but more came when the clock was set back, and then there was no room for them."""
    office.schedule._window.limit = 50
    due = office.clock.now_ms() + 2 * HOUR
    few = [message(due + number, b"few %d" % number) for number in range(5)]
    await office.publish(few)
    [bucket] = office.schedule._buckets
    await office.advance(bucket.period.opens_ms - office.clock.now_ms())
    assert bucket.is_open and office.schedule.loaded == 5
    office.clock.jump(-HOUR)
    more = [message(due + 5 + number, b"more %d" % number) for number in range(30)]
    await office.publish(more)
    soon = await office.delay(*range(100, 120))
    await office.schedule.fire_due()
    assert bucket.read_to == 35 and bucket.misses_something and 0 < bucket.loaded < 35
    await office.advance(3 * HOUR)
    assert await office.sent() == [*soon, *(entry.value for entry in few + more)]


@pytest.mark.parametrize("ahead", [1, 3000, 1_000_000])
async def test_what_is_read_ahead(office: Office, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    monkeypatch.setattr(firing, "AHEAD_BYTES", ahead)
    delays = [100 + (number * 37) % MANY for number in range(MANY)]
    bodies: list[bytes] = []
    for first in range(0, MANY, 20):
        bodies += await office.delay(*delays[first : first + 20])
    office.clock.advance(1)
    most_ahead = reads = 0

    async def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return await stored_records.read_records(*args)

    monkeypatch.setattr(firing, "read_records", counted)
    while await office.schedule._step():
        kept = office.schedule._firing._ahead.values()
        most_ahead = max(most_ahead, sum(map(len, kept)))
    assert await office.sent() == [
        body for _, _, body in sorted(zip(delays, range(MANY), bodies, strict=True))
    ]
    assert most_ahead < ahead
    if office.window == 100:
        most_reads = {1: MANY, 3000: 30, 1_000_000: 15}[ahead]
        assert reads <= most_reads, "a window full at a time, if there is room"


@pytest.mark.parametrize("window", [WINDOW, 2 * MANY])
async def test_an_error_while_a_log_is_read(
    office: Office, most_loaded: list[int], monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Nothing of it is loaded twice then, and nothing is left out."""
    office.schedule._window.limit = window
    delays = [100 + (number * 37) % MANY for number in range(MANY)]
    bodies: list[bytes] = []
    for first in range(0, MANY, 20):
        bodies += await office.delay(*delays[first : first + 20])
    keys = pieces = errors = 0

    async def read_piece(*args: Any) -> stored_records.Piece:
        nonlocal pieces
        pieces += 1
        if pieces % 47 == 0:
            raise OSError("before a piece")
        return await stored_records.read_piece(*args)

    def keys_in(*args: Any) -> Iterator[tuple[int, bytes]]:
        nonlocal keys
        for found in reading.keys_in(*args):
            keys += 1
            if keys % 97 == 0 and errors < 30:
                raise OSError("in the middle of one")
            yield found

    monkeypatch.setattr(loading, "read_piece", read_piece)
    monkeypatch.setattr(loading, "keys_in", keys_in)
    office.clock.advance(1)
    while office.schedule.waiting:
        try:
            await office.schedule.fire_due()
        except OSError:
            errors += 1
    assert errors > 5
    assert await office.sent() == [
        body for _, _, body in sorted(zip(delays, range(MANY), bodies, strict=True))
    ]
