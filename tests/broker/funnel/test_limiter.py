"""The limiter alone: never more than it says, and no delivery is forgotten."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.funnel.limiter import DeliveryLimiter
from posthouse.broker.funnel.limits import DeliveryLimits, decode_limits
from posthouse.model.clock import ManualClock
from posthouse.model.errors import DataDamaged
from posthouse.model.rates import parse_rate, shown_rate


def limiter(clock: ManualClock, **limits: float | None) -> DeliveryLimiter:
    return DeliveryLimiter(DeliveryLimits(**limits), clock, lambda: None)  # type: ignore[arg-type]


@given(
    rate=st.floats(0.001, 1_000_000),
    steps=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 500)), max_size=60),
)
def test_no_window_has_more_than_burst_and_rate(rate: float, steps: list[tuple[float, int]]) -> None:
    clock = ManualClock()
    tokens = limiter(clock, rate=rate)
    taken: list[tuple[float, int]] = []
    for seconds, wanted in steps:
        clock.advance(seconds)
        count = min(wanted, tokens.room(0))
        tokens.took(count)
        taken.append((clock.monotonic(), count))
    for first, (began, _) in enumerate(taken):
        total = 0
        for ended, count in taken[first:]:
            total += count
            assert total <= tokens.limits.burst + rate * (ended - began) + 1e-6 * max(rate, 1)


@given(rate=st.floats(0.01, 100_000), pieces=st.lists(st.floats(0.001, 0.2), min_size=20, max_size=60))
def test_a_rate_is_reached(rate: float, pieces: list[float]) -> None:
    """Whoever takes whatever there is, and comes often enough, gets the rate."""
    clock = ManualClock()
    tokens = limiter(clock, rate=rate)
    total = lost = 0.0
    for seconds in pieces:
        clock.advance(seconds)
        count = tokens.room(0)
        tokens.took(count)
        total += count
        lost += max(rate * seconds - tokens.limits.burst, 0) + (
            1 if rate * seconds > tokens.limits.burst - 1 else 0
        )
    assert total >= rate * sum(pieces) - lost - 2


@given(
    concurrency=st.integers(1, 50),
    actions=st.lists(st.tuples(st.sampled_from(("take", "settle")), st.integers(1, 80)), max_size=100),
)
def test_places_are_never_exceeded(concurrency: int, actions: list[tuple[str, int]]) -> None:
    places = limiter(ManualClock(), concurrency=concurrency)
    in_flight = 0
    for action, wanted in actions:
        if action == "settle":
            in_flight -= min(wanted, in_flight)
            continue
        room = places.room(in_flight)
        assert room == concurrency - in_flight
        count = min(wanted, room)
        places.took(count)
        in_flight += count
        assert in_flight <= concurrency


def test_the_stricter_limit_counts() -> None:
    clock = ManualClock()
    both = limiter(clock, rate=100, concurrency=4)
    assert both.room(1) == 3
    both.took(3)
    clock.advance(10)
    assert both.room(0) == 4
    both.took(8)
    assert both.room(0) == 2, "there are no more than two tokens"


async def test_a_delivery_that_was_held_back_is_woken() -> None:
    woken = asyncio.Event()
    tokens = DeliveryLimiter(DeliveryLimits(rate=1000), ManualClock(), woken.set)
    tokens.took(tokens.room(0))
    tokens.hold_back()
    async with asyncio.timeout(30):
        await woken.wait()


async def test_a_free_place_wakes_at_once_and_only_if_somebody_waits() -> None:
    woken = []
    places = DeliveryLimiter(DeliveryLimits(concurrency=1), ManualClock(), lambda: woken.append(1))
    places.freed()
    assert not woken
    places.hold_back()
    places.freed()
    places.freed()
    assert woken == [1]


async def test_the_time_of_holding_back_is_counted() -> None:
    clock = ManualClock()
    places = limiter(clock, concurrency=1)
    places.hold_back()
    clock.advance(2)
    places.hold_back()
    assert places.held_seconds == 2
    clock.advance(1)
    places.freed()
    clock.advance(5)
    assert places.held_seconds == 3


async def test_a_changed_limit_wakes_and_keeps_no_more_than_its_burst() -> None:
    clock, woken = ManualClock(), []
    tokens = DeliveryLimiter(DeliveryLimits(rate=1000), clock, lambda: woken.append(1))
    tokens.change(DeliveryLimits(rate=20))
    assert tokens.room(0) == 2
    tokens.took(2)
    tokens.hold_back()
    tokens.change(DeliveryLimits(concurrency=5))
    assert woken == [1]
    assert tokens.room(0) == 5
    tokens.change(DeliveryLimits(rate=20))
    assert tokens.room(0) == 2, "time without a rate counts as rest"


async def test_a_stopped_limiter_wakes_nobody() -> None:
    woken = []
    tokens = DeliveryLimiter(DeliveryLimits(rate=100_000), ManualClock(), lambda: woken.append(1))
    tokens.took(tokens.room(0))
    tokens.hold_back()
    tokens.stop()
    await asyncio.sleep(0.03)
    assert not woken


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100", 100), ("100/s", 100), (" 1.5 / s ", 1.5), ("30/m", 0.5), ("36/h", 0.01), ("1000000/s", 1e6)],
)
def test_rates_as_people_type_them(text: str, rate: float) -> None:
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "fast", "1/d", "1/h/s", "2000000", "1e3", "nan", "0.1/h", "1//s"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate(text)


@given(st.integers(1, 9_999), st.sampled_from("smh"))
def test_a_shown_rate_is_the_same(count: int, unit: str) -> None:
    rate = parse_rate(f"{max(count, 4)}/{unit}")
    assert parse_rate(shown_rate(rate)) == pytest.approx(rate)


def test_stored_limits_come_back() -> None:
    limits = DeliveryLimits(rate=0.25, concurrency=3)
    assert decode_limits(limits.encode()) == limits


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 2, "rate": 1, "concurrency": 1}',
        b'{"version": 1, "rate": "x"}',
        b'{"version": 1, "rate": -1, "concurrency": null}',
    ],
)
def test_damaged_limits_are_told(data: bytes) -> None:
    with pytest.raises(DataDamaged):
        decode_limits(data)
