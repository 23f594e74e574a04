"""Who may be connected, and who has to go first."""

from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.protocols.gate import OFFENDERS_AT_ONCE, Gate, Visitor


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


def test_only_some_of_an_address_wait_and_the_newest_are_among_them() -> None:
    guests = Guests(total=1000)
    offender = Visitor("10.0.0.1", "offender", lambda: None)
    guests.gate.enter(offender)
    guests.gate.prove(offender)
    for _ in range(20):
        guests.gate.offended(offender)
    for number in range(OFFENDERS_AT_ONCE + 3):
        assert guests.come(str(number)) is None
    assert guests.gone == ["0", "1", "2"]
    assert guests.come("elsewhere", "10.0.0.2") is None
    assert len(guests.gone) == 3


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
        "sending the connection from 0 away: no login or request in 10 s",
        "sent 50 connections away in about a second",
    ]
