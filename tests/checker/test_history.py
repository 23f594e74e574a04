"""A history that is saved and loaded is the same history."""

from pathlib import Path
from typing import get_args

from tests.checker.history import (
    Ack,
    Assign,
    Bury,
    ChangeLease,
    CommitOffset,
    CommittedOffset,
    DeadLetters,
    Deliver,
    Drained,
    End,
    Fault,
    FinalRead,
    History,
    Lease,
    Operation,
    Outcome,
    Poll,
    Publish,
    Send,
    Subscribe,
    Takeover,
    Watermarks,
    from_line,
    to_line,
)

ORDERS = ("orders", 0)
EACH = History(
    [
        Fault(1, "kill -9 \u2013 at once"),
        Takeover(1, 2),
        Send(1, 2, 3, ORDERS, 7, Outcome.OK, 0),
        Send(1, 2, 3, ORDERS, 8, Outcome.UNKNOWN, None, transaction=4),
        End(1, 4, 5, 4, True, Outcome.FAILED),
        Assign(2, 5, {ORDERS: None, ("orders", 1): 9}),
        Poll(2, 5, 6, True, [(ORDERS, 0, 7), (("orders", 1), 9, 8)]),
        CommitOffset(2, 6, 7, "billing", ORDERS, 1, Outcome.OK, 4),
        CommittedOffset(2, 7, 8, "billing", ORDERS, None),
        Watermarks(2, 8, 9, ORDERS, 0, 1, 2),
        FinalRead(ORDERS, False, 0, 2, [(0, 7), (1, 8)]),
        Publish(3, 1, 2, "mail", 5, Outcome.OK),
        Subscribe(4, 2, "mail"),
        Deliver(4, 3, "mail", 5, True),
        Ack(4, 3, 4, "mail", 5, Outcome.UNKNOWN),
        Lease(5, 1, 2, "work", 6, ORDERS, 3, "lane", 1, 1000),
        Lease(5, 1, 2, "work", 7, ORDERS, 4, None, 2, 1000),
        ChangeLease(5, 3, 4, "work", 6, 0, Outcome.OK),
        Bury(5, 3, 4, "work", 7, Outcome.FAILED),
        DeadLetters("work", 17, [7]),
        Drained("mail", [5, 6]),
    ]
)


def test_every_operation_survives_a_file(tmp_path: Path) -> None:
    assert {type(each) for each in EACH} == set(get_args(Operation))
    EACH.save(tmp_path / "history.jsonl")
    loaded = History.load(tmp_path / "history.jsonl")
    assert loaded == EACH
    assert all(type(each.outcome) is Outcome for each in loaded if hasattr(each, "outcome"))


def test_an_operation_is_one_line() -> None:
    for each in EACH:
        line = to_line(each)
        assert line.count("\n") == 1
        assert line.endswith("\n")
        assert from_line(line) == each
