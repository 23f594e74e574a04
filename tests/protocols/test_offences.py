"""How long an address waits whose clients misbehave."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.networks import owner_of
from posthouse.protocols import offences
from posthouse.protocols.offences import FREE_SECONDS, NOTHING_CAME_SECONDS, Offences

HOST = "10.0.0.1"
MOST = 2.0


class Record:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.offences = Offences(self.clock, MOST)

    def offend(self, times: int = 1, host: str = HOST) -> float:
        wait = 0.0
        for _ in range(times):
            wait = self.offences.add(host)
        return wait


def test_a_few_cost_nothing() -> None:
    record = Record()
    assert record.offend(10) == 0
    assert record.offences.wait(HOST) == 0
    assert record.offend() == pytest.approx(1)
    assert record.offences.wait(HOST) == pytest.approx(1)


def test_others_do_not_wait() -> None:
    record = Record()
    record.offend(100)
    assert record.offences.wait("10.0.0.2") == 0


def test_nobody_waits_longer_than_that() -> None:
    record = Record()
    assert record.offend(1000) == MOST
    record.clock.advance(MOST)
    assert record.offences.wait(HOST) == pytest.approx(0)
    assert record.offend() == pytest.approx(1)


def test_whoever_waits_each_time_offends_once_in_a_second() -> None:
    record = Record()
    begun = record.clock.monotonic()
    for _ in range(110):
        record.clock.advance(record.offend())
    assert record.clock.monotonic() - begun == pytest.approx(100)


def test_time_pays_it_off_and_then_it_is_forgotten() -> None:
    record = Record()
    record.offend(11)
    record.clock.advance(FREE_SECONDS / 2)
    record.offences.sweep()
    assert len(record.offences) == 1
    assert record.offend(5) == pytest.approx(1)
    record.clock.advance(FREE_SECONDS + 1)
    record.offences.sweep()
    assert len(record.offences) == 0
    assert record.offend(10) == 0


def test_connections_that_come_to_nothing_cost_a_tenth() -> None:
    record = Record()
    for _ in range(100):
        assert record.offences.add(HOST, NOTHING_CAME_SECONDS) == pytest.approx(0)
    assert record.offences.add(HOST, NOTHING_CAME_SECONDS) == pytest.approx(0.1)


def test_an_owner_of_many_addresses_is_one() -> None:
    record = Record()
    for number in range(100):
        record.offend(host=owner_of(f"2001:db8:0:1::{number:x}"))
    assert record.offences.wait(owner_of("2001:db8:0:1:ffff::1%eth0")) == MOST
    assert record.offences.wait(owner_of("[2001:db8:0:1::5]")) == MOST
    assert record.offences.wait(owner_of("2001:db8:0:2::1")) == 0
    assert len(record.offences) == 1
    assert owner_of("10.0.0.1") == "10.0.0.1"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offences, "_MOST_ADDRESSES", 3)
    record = Record()
    record.offend(20, "often")
    for name in ("a", "b", "often", "c", "d"):
        record.offend(host=name)
    assert len(record.offences) == 3
    assert record.offences.wait("often") > 0, "it offended after `a` and `b` did"
