"""The checker can fail: every anomaly that it looks for is planted and must be found."""

from collections.abc import Callable

import pytest

from tests.crash.checker import History, Place, check


def good() -> tuple[History, dict[Place, str]]:
    history = History()
    log = {Place(number % 2, number // 2): f"a:{number}" for number in range(10)}
    for place, value in log.items():
        history.sent.add(value)
        history.acknowledge(value, place)
        history.see(place, value)
    return history, log


def lose_acknowledged(history: History, log: dict[Place, str]) -> None:
    history.seen.clear()
    del log[Place(1, 4)]


def move_acknowledged(history: History, log: dict[Place, str]) -> None:
    history.seen.clear()
    log[Place(1, 5)] = log.pop(Place(1, 4))


def lose_seen(history: History, log: dict[Place, str]) -> None:
    del history.acknowledged["a:9"]
    del log[Place(1, 4)]


def repeat(history: History, log: dict[Place, str]) -> None:
    log[Place(0, 5)] = "a:8"


def swap(history: History, log: dict[Place, str]) -> None:
    history.acknowledged.clear()
    history.seen.clear()
    log[Place(0, 0)], log[Place(0, 1)] = log[Place(0, 1)], log[Place(0, 0)]


def invent(history: History, log: dict[Place, str]) -> None:
    log[Place(0, 5)] = "a:77"


def acknowledge_twice(history: History, log: dict[Place, str]) -> None:
    history.acknowledge("a:0", Place(0, 0))


def change_what_was_seen(history: History, log: dict[Place, str]) -> None:
    history.see(Place(0, 0), "a:1")


def test_a_log_that_keeps_its_promises_passes() -> None:
    history, log = good()
    history.sent.add("a:10")
    log[Place(0, 5)] = "a:10"  # sent, never acknowledged: it may be there or not
    assert check(history, log.items()) == []


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lose_acknowledged, "a:9 was acknowledged"),
        (move_acknowledged, "a:9 was acknowledged"),
        (lose_seen, "a:9 was seen"),
        (repeat, "a:8 is there 2 times"),
        (swap, "comes after"),
        (invent, "was never sent"),
        (acknowledge_twice, "acknowledged twice"),
        (change_what_was_seen, "and then a:1"),
    ],
)
def test_each_anomaly_is_found(plant: Callable[[History, dict[Place, str]], None], message: str) -> None:
    history, log = good()
    plant(history, log)
    found = check(history, log.items())
    assert any(message in anomaly for anomaly in found), found
