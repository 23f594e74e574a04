"""Back-off and circuit as the page documents them."""

from random import Random

import pytest

from posthouse.broker.webhooks.state import CircuitState
from posthouse.webhooks.answers import Answer, Verdict
from posthouse.webhooks.circuit import FAILURES, Circuit
from posthouse.webhooks.delays import Delays


def test_delays_double_up_to_the_longest() -> None:
    delays = Delays(first=5, longest=3600)
    assert [delays.longest_after(n) for n in range(1, 13)] == [
        *(5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600)
    ]
    assert delays.longest_after(10_000) == 3600


def test_delays_are_spread_between_half_and_the_whole() -> None:
    random, delays = Random(3), Delays(first=8, longest=100)
    drawn = [delays.after(1, random) for _ in range(1000)]
    assert 4 <= min(drawn) < 4.1 and 7.9 < max(drawn) <= 8


def test_all_attempts_take_about_six_hours() -> None:
    delays = Delays(first=5, longest=3600)
    assert 6 * 3600 < sum(delays.longest_after(n) for n in range(1, 16)) < 7 * 3600


def circuit() -> Circuit:
    return Circuit(Delays(first=10, longest=40), Random(1))


def test_a_circuit_opens_after_failures_in_a_row_and_closes_with_a_success() -> None:
    it = circuit()
    for _ in range(FAILURES - 1):
        it.failed(0.0, is_probe=False)
    it.succeeded()
    for _ in range(FAILURES - 1):
        assert it.begin(0.0) is False
        it.failed(0.0, is_probe=False)
    assert it.begin(0.0) is False, "still closed"
    it.failed(0.0, is_probe=False)
    assert it.state is CircuitState.OPEN
    assert 5 <= it.until <= 10
    assert it.begin(4.0) is None
    assert it.begin(10.0) is True
    assert it.begin(10.0) is None and it.wait(10.0) is None, "one probe at a time"
    it.succeeded()
    assert it.begin(10.0) is False


def test_each_failed_probe_doubles_the_wait() -> None:
    it, now = circuit(), 0.0
    for _ in range(FAILURES):
        it.failed(now, is_probe=False)
    for longest in (10, 20, 40, 40):
        assert longest / 2 <= it.until - now <= longest
        now = it.until
        assert it.begin(now) is True
        it.failed(now, is_probe=True)


def test_a_probe_without_a_result_is_sent_again() -> None:
    it = circuit()
    for _ in range(FAILURES):
        it.failed(0.0, is_probe=False)
    assert it.begin(10.0) is True
    it.given_up()
    assert it.begin(10.0) is True


def test_late_failures_do_not_end_a_probe() -> None:
    it = circuit()
    for _ in range(FAILURES):
        it.failed(0.0, is_probe=False)
    assert it.begin(10.0) is True
    it.failed(10.0, is_probe=False)
    assert it.state is CircuitState.HALF_OPEN


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ((200, 201, 204, 299), Verdict.DELIVERED),
        ((300, 301, 302, 307, 308, 500, 502, 503, 504, 599), Verdict.FAILED),
        ((401, 403, 404, 405, 407, 408, 409, 421, 423, 424, 425, 429), Verdict.FAILED),
        ((400, 402, 406, 411, 413, 414, 415, 418, 422, 431, 451), Verdict.REFUSED),
        ((410,), Verdict.GONE),
    ],
)
def test_what_a_status_means(statuses: tuple[int, ...], verdict: Verdict) -> None:
    assert {Answer(status=each).verdict for each in statuses} == {verdict}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        (" 7 ", 7),
        ("999999999999999999999", 86_400),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("Fri, 01 Jan 9999 00:00:00 GMT", 86_400),
        ("soon", 0),
        ("-5", 0),
        ("", 0),
        ("١٢", 0),
        (None, 0),
    ],
)
def test_retry_after(text: str | None, seconds: float) -> None:
    answer = Answer(status=503, retry_after=text)
    assert answer.wait_seconds(1_700_000_000_000) == pytest.approx(seconds, abs=0.01)
