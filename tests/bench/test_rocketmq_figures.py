"""What is made of figures beside RocketMQ: ratios, aims, and the page."""

from dataclasses import replace

import pytest

from bench.rocketmq.figures import Row
from bench.rocketmq.peers import POSTHOUSE, ROCKETMQ
from bench.rocketmq.plan import QUICK, Plan
from bench.rocketmq.report import Circumstances, document, line


def row(own: list[float], theirs: list[float], **more: object) -> Row:
    made = Row(section="Sends", name="send", unit="messages/s", rounds={POSTHOUSE: own, ROCKETMQ: theirs})
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_ratio_is_taken_within_each_round() -> None:
    ratio = row([10, 40, 90], [10, 20, 30]).ratio
    assert ratio is not None
    assert (ratio.middle, ratio.low, ratio.high) == (2, 1, 3)


def test_less_is_better() -> None:
    ratio = row([10], [30], is_less_better=True).ratio
    assert ratio is not None and ratio.middle == 3


@pytest.mark.parametrize(("own", "theirs"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_there_is_no_ratio(own: list[float], theirs: list[float]) -> None:
    assert row(own, theirs).ratio is None


@pytest.mark.parametrize(
    ("aim", "own", "theirs", "is_reached"),
    [
        ({"least_ratio": 3.0}, [30.0], [10.0], True),
        ({"least_ratio": 3.0}, [29.0], [10.0], False),
        ({"least_ratio": 3.0}, [29.0], [], None),
        ({"most": 300.0}, [300.0], [], True),
        ({"most": 300.0}, [301.0], [1000.0], False),
        ({"most": 300.0}, [], [1000.0], None),
        ({}, [1.0], [1.0], None),
    ],
)
def test_aims(aim: dict[str, float], own: list[float], theirs: list[float], is_reached: bool | None) -> None:
    assert row(own, theirs, **aim).is_reached is is_reached


def test_the_page_names_missed_aims_and_what_is_missing() -> None:
    rows = [row([1.0], [2.0], least_ratio=1.0), row([2.0], [1.0], least_ratio=1.0)]
    circumstances = Circumstances(
        command="make bench-rocketmq",
        commit="0123456789",
        plan=Plan(),
        is_complete=True,
        failures=["RocketMQ, delay, round 1: it did not start"],
    )
    page = document(rows, circumstances)
    assert "1 of 2 aims are reached" in page
    assert "- Sends, send: 1.00 messages/s, 0.50 × RocketMQ; the aim was ≥ 1 × RocketMQ" in page
    assert "- RocketMQ, delay, round 1: it did not start" in page
    assert line(rows[1]) in page
    assert "at commit 0123456789." in page
    assert "trial" not in page
    assert "as a trial" in document(rows, replace(circumstances, plan=QUICK))
    assert "did not come to its end" in document(rows, replace(circumstances, is_complete=False))
