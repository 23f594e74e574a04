"""What is out of order is found, also where the checker must allow it."""

import pytest

from tests.checker.history import Deliver, Fault, FinalRead, History, Operation, Outcome, Publish, Send
from tests.checker.judge import check
from tests.crash.orders import check_orders

P = ("orders", 0)
Q = "mail"
UNKNOWN = Outcome.UNKNOWN

SENDS: list[Operation] = [Send(9, time, time, P, value, UNKNOWN, None) for time, value in ((1, 11), (2, 12))]
PUBLISHES: list[Operation] = [
    Publish(9, 1, 2, Q, 11, UNKNOWN),
    Publish(9, 3, 4, Q, 12, UNKNOWN),
]

FINE: dict[str, list[Operation]] = {
    "in order": [*SENDS, FinalRead(P, True, 0, 2, [(0, 11), (1, 12)])],
    "only the later one is there": [*SENDS, FinalRead(P, True, 0, 1, [(0, 12)])],
    "delivered in order, by two brokers": [
        *PUBLISHES,
        Deliver(1, 5, Q, 11, False),
        Fault(6, "kill"),
        Deliver(2, 7, Q, 11, True),
        Deliver(2, 8, Q, 12, False),
    ],
    "delivered again, with its mark": [
        *PUBLISHES,
        Deliver(1, 5, Q, 11, False),
        Deliver(1, 6, Q, 12, False),
        Fault(7, "kill"),
        Deliver(2, 8, Q, 11, True),
        Deliver(2, 9, Q, 12, True),
    ],
}
BROKEN: dict[str, tuple[list[Operation], str]] = {
    "unacknowledged records out of order": (
        [*SENDS, FinalRead(P, True, 0, 2, [(0, 12), (1, 11)])],
        "11 at 1",
    ),
    "handed out in disorder": (
        [*PUBLISHES, Deliver(1, 5, Q, 12, False), Deliver(1, 6, Q, 11, False)],
        "11 came from mail as new",
    ),
    "the mark is forgotten in a kill": (
        [*PUBLISHES, Deliver(1, 5, Q, 11, False), Fault(6, "kill"), Deliver(2, 7, Q, 11, False)],
        "11 came from mail as new",
    ),
}


@pytest.mark.parametrize("operations", FINE.values(), ids=FINE)
def test_order_is_no_anomaly(operations: list[Operation]) -> None:
    assert check_orders(History(operations)) == []


@pytest.mark.parametrize(("operations", "message"), BROKEN.values(), ids=BROKEN)
def test_disorder_is_found(operations: list[Operation], message: str) -> None:
    history = History(operations)
    assert check(history).clean, "where the checker finds it, nobody else has to"
    [found] = check_orders(history)
    assert message in found
