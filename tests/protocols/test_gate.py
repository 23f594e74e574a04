"""Who may be connected, and who has to go first."""

from typing import Any
from uuid import uuid4

import pytest

from posthouse.broker.cluster_usage import ClusterUsage
from posthouse.broker.dynamic_settings import ConnectionLimits
from posthouse.model.clock import ManualClock
from posthouse.model.usage import Limited, Use
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

    def come(
        self, name: str, host: str = "10.0.0.1", *, proves: bool = False, is_forwarded: bool = False
    ) -> str | None:
        visitor = Visitor(host, name, lambda: self._leave(visitor), is_forwarded=is_forwarded)
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


class GuestsOfOne(Guests):
    """At one of two brokers, which may have three connections of an address together."""

    def __init__(self, per_address: int = 3) -> None:
        self._other = uuid4()
        self._cluster = ClusterUsage(b"secret", ManualClock(), lambda: [self._other])
        super().__init__(total=10, per_address=per_address, cluster=self._cluster)

    def there(self, count: int, host: str = "10.0.0.1") -> None:
        """The other broker tells its count."""
        self._cluster.told(self._other, self._cluster.report([Use(Limited.ADDRESS, host, count, 3)]))


def test_connections_of_an_address_at_another_broker_count() -> None:
    guests = GuestsOfOne()
    guests.there(2)
    assert guests.come("first") is None
    assert "max_connections_per_address" in (guests.come("second") or "")
    assert guests.come("elsewhere", "10.0.0.2") is None
    guests.there(1)
    assert guests.come("second") is None
    guests.there(3, host="2001:db8::/64")
    assert guests.come("far", "2001:db8::1") is not None


def test_the_total_is_of_each_broker() -> None:
    guests = GuestsOfOne(per_address=0)
    guests.there(100)
    for number in range(10):
        assert guests.come(str(number), proves=True) is None
    assert "max_connections)" in (guests.come("last") or "")


def test_a_forwarded_connection_counts_once() -> None:
    """The other broker tells of it, too."""
    guests = GuestsOfOne()
    guests.there(1)
    assert guests.come("forwarded", is_forwarded=True) is None
    assert guests.come("first") is None
    assert guests.come("second") is None
    assert guests.come("third") is not None


def test_forwarded_connections_count_before_the_other_broker_tells_of_them() -> None:
    guests = GuestsOfOne()
    for number in range(3):
        assert guests.come(f"forwarded {number}", is_forwarded=True) is None
    assert guests.come("first") is not None


def test_the_broker_that_forwards_a_connection_has_looked_at_all_others() -> None:
    """It may have told of this one before it comes."""
    guests = GuestsOfOne()
    assert guests.come("first") is None
    guests.there(2)
    assert guests.come("forwarded", is_forwarded=True) is None
    assert guests.come("forwarded too", is_forwarded=True) is None
    assert guests.come("forwarded without end", is_forwarded=True) is not None


def test_others_are_told_which_addresses_have_many_connections() -> None:
    guests = Guests(total=100, per_address=10)
    for number in range(4):
        guests.come(str(number))
        guests.come(str(number), is_forwarded=True)
    guests.come("single", "10.0.0.2")
    guests.come("forwarded", "10.0.0.3", is_forwarded=True)
    assert list(guests.gate.uses(0.2)) == [Use(Limited.ADDRESS, "10.0.0.1", 4, 10)]
    assert {each.name for each in guests.gate.uses(0.01)} == {"10.0.0.1", "10.0.0.2"}
    assert list(Guests(total=10).gate.uses(0.0)) == []


def test_forwarded_connections_leave() -> None:
    guests = GuestsOfOne()
    visitor = Visitor("10.0.0.1", "forwarded", lambda: None, is_forwarded=True)
    assert guests.gate.enter(visitor) is None
    assert guests.come("first") is None
    guests.gate.leave(visitor)
    assert [each.amount for each in guests.gate.uses(0.0)] == [1]
    assert guests.come("second") is None
