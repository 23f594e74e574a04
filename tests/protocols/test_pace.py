"""Those who send in drops."""

from posthouse.protocols.pace import LEAST_BYTES_A_SECOND, SLOW_SECONDS, Pace


def seconds_until_too_slow(bytes_a_second: int, *, waits_for_rest: bool = True) -> int | None:
    pace = Pace()
    for second in range(1, 10 * SLOW_SECONDS):
        pace.received += bytes_a_second
        if pace.is_too_slow(waits_for_rest=waits_for_rest):
            return second
    return None


def test_drops_are_too_slow() -> None:
    assert seconds_until_too_slow(LEAST_BYTES_A_SECOND - 1) == SLOW_SECONDS


def test_a_slow_line_is_not() -> None:
    assert seconds_until_too_slow(LEAST_BYTES_A_SECOND) is None


def test_nobody_has_to_say_anything() -> None:
    assert seconds_until_too_slow(0, waits_for_rest=False) is None


def test_a_good_second_makes_up_for_all_before() -> None:
    pace = Pace()
    for _ in range(10):
        for _ in range(SLOW_SECONDS - 1):
            assert not pace.is_too_slow(waits_for_rest=True)
        pace.received += LEAST_BYTES_A_SECOND
        assert not pace.is_too_slow(waits_for_rest=True)
