"""Who may be connected, and who has to go first."""

from typing import Any

import pytest

from posthouse.broker.dynamic_settings import ConnectionLimits
from posthouse.model.clock import ManualClock
from posthouse.protocols.gate import (
    OFFENDERS_AT_ONCE,
    SECONDS_TO_BEGIN,
    SECONDS_TO_WAIT,
    Gate,
    Visitor,
)
from posthouse.protocols.offences import FREE_SECONDS


class Guests:
    """Visitors that leave when they are sent away, as connections do."""

    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock()
        self.gate = Gate(self.clock, **limits)
        self.gone: list[str] = []

    def come(self, name: str, host: str = "10.0.0.1", *, proves: bool = False) -> str | None:
        visitor = Visitor(host, name, lambda: self._leave(visitor))
        reason = self.gate.enter(visitor)
        if proves and reason is None:
            self.gate.prove(visitor)
        return reason

    def _leave(self, visitor: Visitor) -> None:
        self.gone.append(visitor.peer)
        self.gate.leave(visitor)


def test_the_oldest_that_has_not_shown_what_it_wants_makes_room() -> None:
    guests = Guests(total=3)
    for name in ("first", "second", "third"):
        assert guests.come(name, proves=name == "first") is None
    assert guests.come("fourth") is None
    assert guests.gone == ["second"]
    assert len(guests.gate) == 3


def test_those_who_use_their_connections_are_not_sent_away() -> None:
    guests = Guests(total=2)
    guests.come("first", proves=True)
    guests.come("second", proves=True)
    assert "max_connections" in (guests.come("third") or "")
    assert guests.gone == []
    assert len(guests.gate) == 2


def test_only_some_may_be_unproven() -> None:
    guests = Guests(total=10_000)
    for number in range(5000):
        assert guests.come(str(number), host=f"10.0.{number >> 8}.{number & 255}") is None
    assert guests.gate.unproven == 1000
    assert guests.gone == [str(number) for number in range(4000)]


def test_one_address_has_its_limit() -> None:
    guests = Guests(total=10, per_address=2)
    guests.come("first", proves=True)
    guests.come("second", proves=True)
    assert "max_connections_per_address" in (guests.come("third") or "")
    assert guests.come("elsewhere", "10.0.0.2") is None


def test_limits_can_change() -> None:
    guests = Guests(total=10)
    guests.come("first", proves=True)
    guests.come("second", proves=True)
    guests.gate.limit(ConnectionLimits(total=10, per_address=2))
    assert "max_connections_per_address" in (guests.come("third") or "")
    guests.gate.limit(ConnectionLimits(total=2, per_address=0))
    assert "max_connections)" in (guests.come("third") or "")
    guests.gate.limit(ConnectionLimits(total=3, per_address=0))
    assert guests.come("third") is None
    assert guests.gone == []


def test_a_place_is_free_again() -> None:
    guests = Guests(total=10, per_address=1)
    visitor = Visitor("10.0.0.1", "first", lambda: None)
    assert guests.gate.enter(visitor) is None
    guests.gate.leave(visitor)
    assert len(guests.gate) == guests.gate.unproven == 0
    assert guests.come("second") is None


@pytest.mark.parametrize("proves", [True, False])
def test_time_runs_out_for_those_who_say_nothing(proves: bool) -> None:
    guests = Guests(total=10)
    guests.come("early", proves=proves)
    guests.clock.advance(6)
    guests.come("late", proves=proves)
    guests.clock.advance(5)
    guests.gate.sweep()
    assert guests.gone == ([] if proves else ["early"])


def test_an_address_that_was_refused_often_has_to_wait() -> None:
    guests = Guests(total=1000)
    visitor = Visitor("10.0.0.1", "first", lambda: None)
    guests.gate.enter(visitor)
    assert [guests.gate.offended(visitor) > 0 for _ in range(12)] == [False] * 10 + [True] * 2
    assert guests.gate.wait(Visitor("10.0.0.1", "second", lambda: None)) > 0
    assert guests.gate.wait(Visitor("10.0.0.2", "elsewhere", lambda: None)) == 0


def offended_often(guests: Guests) -> None:
    offender = Visitor("10.0.0.1", "offender", lambda: None)
    for _ in range(20):
        guests.gate.offended(offender)


def test_only_some_of_an_address_wait_and_each_gets_its_turn() -> None:
    guests = Guests(total=1000)
    offended_often(guests)
    for number in range(OFFENDERS_AT_ONCE):
        assert guests.come(str(number)) is None
    assert "refused too often" in (guests.come("one more") or "")
    assert guests.come("elsewhere", "10.0.0.2") is None
    guests.clock.advance(SECONDS_TO_WAIT)
    offended_often(guests)
    assert guests.come("too early") is not None, "those who wait have not even begun"
    assert guests.gone == []
    guests.clock.advance(SECONDS_TO_BEGIN)
    offended_often(guests)
    assert guests.come("later") is None
    assert guests.gone == ["0"], "it had its time"


def test_who_is_refused_for_want_of_room_owes_nothing() -> None:
    guests = Guests(total=1000)
    offended_often(guests)
    for number in range(1000):
        guests.come(str(number))
    guests.clock.advance(FREE_SECONDS + SECONDS_TO_WAIT)
    assert guests.gate.wait(Visitor("10.0.0.1", "newcomer", lambda: None)) == 0


def test_an_address_that_floods_makes_room_for_its_own() -> None:
    guests = Guests(total=10_000)
    guests.come("good", "10.0.0.2")
    for number in range(2000):
        guests.come(str(number))
    assert "good" not in guests.gone
    assert guests.gate.unproven == 1000
    assert guests.gate.wait(Visitor("10.0.0.1", "newcomer", lambda: None)) > 0
    assert guests.gate.wait(Visitor("10.0.0.2", "newcomer", lambda: None)) == 0


def test_who_goes_to_make_room_for_many_others_owes_nothing() -> None:
    guests = Guests(total=10_000)
    for number in range(30):
        guests.come(f"good {number}", "10.1.0.1")
    for number in range(5000):
        guests.come(str(number), f"10.0.{number >> 8}.{number & 255}")
    assert "good 29" in guests.gone
    assert guests.gate.wait(Visitor("10.1.0.1", "newcomer", lambda: None)) == 0


def test_the_owner_of_a_network_is_one_address() -> None:
    guests = Guests(total=1000, per_address=3)
    for number in range(3):
        assert guests.come(str(number), f"2001:db8::{number}") is None
    assert guests.come("fourth", "2001:db8::f") is not None
    assert guests.come("elsewhere", "2001:db8:0:1::f") is None


def test_who_is_sent_away_and_who_comes_to_nothing_offend() -> None:
    guests = Guests(total=10)
    newcomer = Visitor("10.0.0.1", "newcomer", lambda: None)
    for number in range(9):
        guests.come(str(number))
    guests.clock.advance(10)
    guests.gate.sweep()
    assert len(guests.gone) == 9
    for _ in range(9):
        guests.gate.enter(newcomer)
        guests.gate.leave(newcomer)
        assert guests.gate.wait(newcomer) == 0
    for _ in range(2):
        guests.gate.enter(newcomer)
        guests.gate.leave(newcomer)
    assert guests.gate.wait(newcomer) == pytest.approx(0.1)


def test_a_flood_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    guests = Guests(total=100)
    for number in range(50):
        guests.come(str(number))
    guests.clock.advance(10)
    with caplog.at_level("INFO"):
        guests.gate.sweep()
        guests.gate.sweep()
    assert [record.getMessage() for record in caplog.records] == [
        "closing the connection from 0: no login or request in 10 s",
        "closed 50 connections without a login or request within a second",
    ]
