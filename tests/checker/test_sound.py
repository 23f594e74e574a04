"""No false alarms: what a correct broker may do, in small. And what a lossy one does is an alarm."""

import pytest

from tests.checker.history import (
    Ack,
    Assign,
    CommitOffset,
    CommittedOffset,
    Deliver,
    Drained,
    End,
    Fault,
    FinalRead,
    History,
    Operation,
    Outcome,
    Poll,
    Publish,
    Send,
    Takeover,
    Watermarks,
)
from tests.checker.judge import check
from tests.checker.model.generate import generate
from tests.checker.report import Kind

OK, FAILED, UNKNOWN = Outcome
P = ("orders", 0)
Q = "mail"

FINE: dict[str, list[Operation]] = {
    "nothing": [],
    "an unknown send was not done": [Send(1, 1, 2, P, 1, UNKNOWN, None), FinalRead(P, False, 0, 0, [])],
    "an unknown send was done late": [
        Send(1, 1, 2, P, 1, UNKNOWN, None),
        Send(1, 3, 4, P, 2, OK, 0),
        FinalRead(P, False, 0, 2, [(0, 2), (1, 1)]),
    ],
    "sends of two processes overlap": [
        Send(1, 1, 4, P, 1, OK, 1),
        Send(2, 2, 3, P, 2, OK, 0),
        FinalRead(P, False, 0, 2, [(0, 2), (1, 1)]),
    ],
    "sends in one instant of a simulated clock": [
        Send(1, 1, 1, P, 1, OK, 1),
        Send(1, 1, 1, P, 2, OK, 0),
        Send(2, 1, 1, P, 3, OK, 2),
    ],
    "a retry is acknowledged without its offset": [
        Send(1, 1, 2, P, 1, OK, None),
        FinalRead(P, False, 0, 1, [(0, 1)]),
    ],
    "a commit without an answer was done": [
        Send(1, 1, 2, P, 1, OK, 0, 9),
        End(1, 3, 4, 9, True, UNKNOWN),
        FinalRead(P, True, 0, 2, [(0, 1)]),
    ],
    "a commit without an answer was not done": [
        Send(1, 1, 2, P, 1, OK, 0, 9),
        End(1, 3, 4, 9, True, UNKNOWN),
        FinalRead(P, True, 0, 2, []),
        FinalRead(P, False, 0, 2, [(0, 1)]),
    ],
    "an open transaction holds up what is committed": [
        Send(1, 1, 2, P, 1, OK, 0, 9),
        Send(2, 3, 4, P, 2, OK, 1),
        FinalRead(P, True, 0, 0, []),
    ],
    "control records and aborted ones are no gaps": [
        Send(1, 1, 2, P, 1, OK, 0),
        Send(2, 3, 4, P, 2, OK, 1, 9),
        End(2, 5, 6, 9, False, OK),
        Send(1, 7, 8, P, 3, OK, 3),
        Assign(3, 9, {P: 0}),
        Poll(3, 9, 10, True, [(P, 0, 1), (P, 3, 3)]),
        FinalRead(P, True, 0, 4, [(0, 1), (3, 3)]),
        FinalRead(P, False, 0, 4, [(0, 1), (1, 2), (3, 3)]),
    ],
    "the log's start overtakes a consumer": [
        *(Send(1, value, value, P, value, OK, value - 1) for value in range(1, 5)),
        Assign(3, 9, {P: 0}),
        Poll(3, 9, 10, False, [(P, 0, 1)]),
        Poll(3, 11, 12, False, [(P, 3, 4)]),
        FinalRead(P, False, 2, 4, [(2, 3), (3, 4)]),
    ],
    "a consumer begins anew at a lower offset": [
        *(Send(1, value, value, P, value, OK, value - 1) for value in range(1, 4)),
        Assign(3, 9, {P: None}),
        Poll(3, 9, 10, False, [(P, 2, 3)]),
        Assign(3, 11, {P: 1}),
        Poll(3, 11, 12, False, [(P, 1, 2), (P, 2, 3)]),
    ],
    "a group's progress is set back by its own commit": [
        CommitOffset(1, 1, 2, "billing", P, 9, OK),
        CommitOffset(1, 3, 4, "billing", P, 5, OK),
        CommittedOffset(1, 5, 6, "billing", P, 5),
    ],
    "a commit without an answer is done late": [
        CommitOffset(1, 1, 2, "billing", P, 5, UNKNOWN),
        CommitOffset(2, 3, 4, "billing", P, 9, OK),
        CommittedOffset(1, 5, 6, "billing", P, 9),
        CommittedOffset(1, 7, 8, "billing", P, 5),
    ],
    "an aborted transaction leaves the progress alone": [
        CommitOffset(1, 1, 2, "billing", P, 5, OK),
        CommitOffset(1, 3, 4, "billing", P, 9, OK, 7),
        End(1, 5, 6, 7, False, OK),
        CommittedOffset(1, 7, 8, "billing", P, 5),
    ],
    "progress from before the history": [CommittedOffset(1, 1, 2, "billing", P, 5)],
    "watermarks that were asked for together": [
        Watermarks(1, 1, 4, P, 2, 5, 5),
        Watermarks(2, 2, 5, P, 1, 4, 4),
    ],
    "watermarks of a broker that is a little behind another": [
        Watermarks(1, 1, 2, P, 2, 5, 5, "a"),
        Watermarks(1, 3, 4, P, 1, 4, 4, "b"),
        Watermarks(1, 5, 6, P, 2, 5, 5, "b"),
    ],
    "a confirmed message was acknowledged, perhaps": [
        Publish(1, 1, 2, Q, 1, OK),
        Deliver(2, 3, Q, 1, False),
        Ack(2, 4, 4, Q, 1, UNKNOWN),
        Drained(Q, []),
    ],
    "a plain acknowledgement and a mark are lost in a crash": [
        Publish(1, 1, 2, Q, 1, OK),
        Deliver(2, 3, Q, 1, False),
        Ack(2, 4, 4, Q, 1, UNKNOWN),
        Fault(5, "kill"),
        Deliver(2, 6, Q, 1, False),
        Drained(Q, [1]),
    ],
    "a broker that stops forgets who was handed what was published meanwhile": [
        Fault(1, "restart of a"),
        Publish(1, 2, 3, Q, 1, OK),
        Deliver(2, 4, Q, 1, False),
        Takeover(3, 6),
        Deliver(3, 7, Q, 1, False),
        Drained(Q, [1]),
    ],
    "a slow consumer reads what another has settled meanwhile": [
        Publish(1, 1, 2, Q, 1, OK),
        Deliver(2, 4, Q, 1, True),
        Ack(2, 5, 6, Q, 1, OK),
        Deliver(3, 7, Q, 1, False),
        Drained(Q, []),
    ],
    "what was given back comes later": [
        Publish(1, 1, 2, Q, 1, OK),
        Publish(1, 3, 4, Q, 2, OK),
        Deliver(2, 5, Q, 1, False),
        Deliver(2, 6, Q, 2, False),
        Deliver(2, 7, Q, 1, True),
        Drained(Q, [2, 1]),
    ],
    "consumers hear of messages in another order": [
        Publish(1, 1, 2, Q, 1, OK),
        Publish(1, 3, 4, Q, 2, OK),
        Deliver(2, 5, Q, 2, False),
        Deliver(3, 6, Q, 1, False),
        Drained(Q, [1, 2]),
    ],
}


@pytest.mark.parametrize("name", FINE)
def test_this_is_fine(name: str) -> None:
    report = check(History(FINE[name]))
    assert report.clean, report


def test_a_lossy_broker_is_caught_and_excused_only_for_its_losses() -> None:
    caught: set[Kind] = set()
    for seed in range(50):
        history = generate(seed, 600, crashes=0.004, lossy=True)
        lax = check(history, durable=False)
        assert lax.clean, f"seed {seed}\n{lax}"
        caught |= check(history).kinds
    assert caught >= {
        Kind.LOST_WRITE,
        Kind.DIRTY_VISIBILITY,
        Kind.INCONSISTENT_OFFSET,
        Kind.COMMITTED_OFFSET,
        Kind.HIGH_WATERMARK,
        Kind.LOST_MESSAGE,
        Kind.ACK_CAME_BACK,
    }


def test_values_must_be_unique() -> None:
    with pytest.raises(ValueError, match="value 1 was sent twice"):
        check(History([Send(1, 1, 2, P, 1, OK, 0), Send(1, 3, 4, P, 1, OK, 1)]))
    with pytest.raises(ValueError, match="published twice"):
        check(History([Publish(1, 1, 2, Q, 1, OK), Publish(1, 3, 4, Q, 1, OK)]))


@pytest.mark.parametrize("takeover", [Takeover(1, 3), Takeover(6, 8)], ids=["before", "after"])
def test_a_takeover_excuses_only_what_it_can_have_forgotten(takeover: Takeover) -> None:
    deliveries = [Deliver(2, 4, Q, 1, False), Deliver(3, 5, Q, 1, False)]
    report = check(History([Publish(1, 3 if takeover.at > 3 else 4, 5, Q, 1, OK), *deliveries, takeover]))
    assert report.kinds == {Kind.UNMARKED_REDELIVERY}
