"""However many messages wait, only so many are known in memory."""

import random
from collections.abc import Sequence

import pytest

from posthouse.broker.schedule import loading, reading
from posthouse.broker.schedule.window import Window
from tests.broker.schedule.office import HOUR, SECOND, Office, message

MANY = 600
WINDOW = 16


@pytest.fixture
def most_loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The most that was ever loaded, looked at whenever something is added."""
    most = [0]
    add, is_full = Window.add, Window.is_full

    def watched(self: Window, key: bytes) -> Sequence[bytes]:
        dropped = add(self, key)
        most[0] = max(most[0], len(self))
        return dropped

    def look(self: Window) -> bool:
        most[0] = max(most[0], len(self))
        return bool(is_full.__get__(self, Window))

    monkeypatch.setattr(Window, "add", watched)
    monkeypatch.setattr(Window, "is_full", property(look))
    monkeypatch.setattr(reading, "PIECE_BYTES", 500)
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


async def test_an_error_while_a_log_is_read_again(
    office: Office, most_loaded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had been loaded of it is loaded once more, and not twice."""
    office.schedule._window.limit = WINDOW
    delays = [100 + (number * 37) % MANY for number in range(MANY)]
    bodies = await office.delay(*delays)
    real = reading.read_piece
    calls = 0

    async def failing(*args: object) -> reading.Piece:
        nonlocal calls
        calls += 1
        if calls % 7 == 0:
            raise OSError("now and then")
        return await real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "read_piece", failing)
    office.clock.advance(1)
    errors = 0
    while office.schedule.waiting:
        try:
            await office.schedule.fire_due()
        except OSError:
            errors += 1
    assert errors > 5
    assert await office.sent() == [
        body for _, _, body in sorted(zip(delays, range(MANY), bodies, strict=True))
    ]
