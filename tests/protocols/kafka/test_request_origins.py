"""Which request was sent before which."""

import pytest

from posthouse.broker.transactions.request_order import Arrival, RequestOrder
from posthouse.protocols.kafka.request_origins import ConnectionIdentity, CorrelatedOrigin


@pytest.mark.parametrize(
    ("last", "now", "arrival"),
    [
        (5, 6, Arrival.IN_ORDER),
        (5, 500, Arrival.IN_ORDER),
        (5, 5, Arrival.LATE),
        (5, 4, Arrival.LATE),
        (500, 5, Arrival.LATE),
        (2**31 - 1, -(2**31), Arrival.IN_ORDER),
        (2**31 - 1, 0, Arrival.IN_ORDER),
        (2**31 - 9, 0, Arrival.IN_ORDER),
        (3, 2**31 - 1, Arrival.IN_ORDER),
    ],
)
def test_numbers_on_one_connection(last: int, now: int, arrival: Arrival) -> None:
    session, line = ConnectionIdentity(), RequestOrder()
    line.follow(CorrelatedOrigin(session, last))
    assert line.judge(CorrelatedOrigin(session, now)) is arrival


def test_connections_follow_each_other() -> None:
    older, middle, younger = ConnectionIdentity(), ConnectionIdentity(), ConnectionIdentity()
    line = RequestOrder()
    assert line.judge(CorrelatedOrigin(middle, 1)) is Arrival.IN_ORDER
    line.follow(CorrelatedOrigin(middle, 1))
    assert line.judge(CorrelatedOrigin(older, 9)) is Arrival.LATE
    assert line.judge(CorrelatedOrigin(younger, 1)) is Arrival.SUCCEEDS
    line.follow(CorrelatedOrigin(younger, 1))
    assert line.judge(CorrelatedOrigin(middle, 2)) is Arrival.LATE


def test_whether_the_client_may_still_speak() -> None:
    line = RequestOrder()
    assert not line.is_open
    session = ConnectionIdentity()
    line.follow(CorrelatedOrigin(session, 1))
    assert line.is_open
    session.is_open = False
    assert not line.is_open
