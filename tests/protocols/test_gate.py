"""Who may be connected, and who has to go first."""

from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.protocols.gate import Gate, Visitor


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
        assert guests.come(str(number)) is None
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
