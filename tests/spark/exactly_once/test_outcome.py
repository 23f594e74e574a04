"""The checks find what they are made to find."""

from tests.spark.exactly_once.outcome import check_passed, check_totals

ORDERS = [(b"a", 1), (b"b", 2), (b"a", 3)]
UPDATES = [(b"a", 1, 1), (b"b", 1, 2), (b"a", 2, 4)]


def test_what_is_right_passes() -> None:
    assert check_passed(ORDERS, reversed(ORDERS)) == []
    assert check_totals(ORDERS, UPDATES) == []


def test_what_is_lost_or_doubled_is_found() -> None:
    assert check_passed(ORDERS, ORDERS[1:]) == ["(b'a', 1) is lost"]
    assert check_passed(ORDERS, [*ORDERS, ORDERS[0]]) == ["(b'a', 1) came more often than it was sent"]


def test_wrong_totals_are_found() -> None:
    assert "ends at" in check_totals(ORDERS, UPDATES[:-1])[0]
    assert "ends at" in check_totals(ORDERS, [*UPDATES[:-1], (b"a", 2, 5)])[0]
    assert "did not grow" in check_totals(ORDERS, [*UPDATES[:2], UPDATES[0], UPDATES[2]])[0]
    assert "ends at" in check_totals(ORDERS, [*UPDATES, (b"c", 1, 1)])[0]
