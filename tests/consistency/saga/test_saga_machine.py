"""Single transitions of sagas: answers that come early, states that cannot be written, and long retries."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from posthouse.consistency.errors import BadMessage
from posthouse.consistency.saga.definition import WAIT, Saga, StepCall, StepFailed
from posthouse.consistency.saga.events import Advance, Event, Failure, Reply, Start
from posthouse.consistency.saga.machine import LONGEST_PAUSE, Change, Machine
from posthouse.consistency.saga.state import SagaState, Status


class Steps:
    """Two steps, which do what `outcomes` says, one after the other."""

    def __init__(self, outcomes: Sequence[object]) -> None:
        self._outcomes = list(outcomes)
        self.results: dict[str, Any] = {}
        saga = Saga("s")
        for step in ("a", "b"):
            saga.step(step, self._act, compensate=lambda _: None, attempts=2)
        self.machine = Machine(saga, lambda: 0, lambda *_: None)

    def _act(self, call: StepCall) -> object:
        self.results = dict(call.results)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def after(self, *events: Event) -> SagaState:
        """The state after a start, the first call, and `events`."""
        change: Change | None = self.machine.handle("1", None, Start("tea"))
        assert change is not None
        for event in (Advance(1), *events):
            change = self.machine.handle("1", change.state, event) or change
        return change.state


def waiting() -> SagaState:
    state = Steps([WAIT]).after()
    assert state.status is Status.WAITING
    return state


def test_a_compensation_that_never_succeeds_is_called_on() -> None:
    steps = Steps([])
    state = msgspec.structs.replace(waiting(), status=Status.COMPENSATING, attempt=5000)
    change = steps.machine.failed(state, "not now")
    assert [each.at_ms for each in change.later] == [LONGEST_PAUSE * 1000]


def test_a_reply_that_cannot_be_written_takes_the_saga_back() -> None:
    """No event would come for a step that waits on."""
    change = Steps([]).machine.failed(waiting(), "too large")
    assert (change.state.status, change.state.step) == (Status.COMPENSATING, "a")
    assert change.events == [Advance(change.state.version)]


def test_a_state_that_cannot_be_written_gets_smaller() -> None:
    for status in (Status.RUNNING, Status.WAITING, Status.COMPENSATING):
        state = msgspec.structs.replace(waiting(), status=status, results={"a": 1}, error="no", attempt=2)
        changes = list(Steps([]).machine.refused(state, "x" * 5000))
        left = [(each.state.input, each.state.results) for each in changes]
        assert left == [("tea", {"a": 1}), ("tea", {"a": 1}), ("tea", {}), (None, {})]
        assert all(each.state.status is Status.COMPENSATING for each in changes)
        assert all(each.events or each.later for each in changes), "it goes on"
        assert all(len(each.state.error or "") < 100 for each in changes[1:])


def test_a_reply_before_the_next_call_is_kept() -> None:
    steps = Steps([OSError("the answer is lost"), WAIT])
    state = steps.after(Reply("a", "paid"), Reply("a", "again"), Advance(2))
    assert (state.status, state.step, state.attempt) == (Status.RUNNING, "a", 2), "to be called at once"
    state = steps_after_early_reply([OSError("the answer is lost"), WAIT])
    assert (state.status, state.step, state.results, state.early) == (
        Status.RUNNING,
        "b",
        {"a": "paid"},
        None,
    )


def test_a_reply_before_the_next_call_is_of_no_use_if_the_step_does_not_wait() -> None:
    assert steps_after_early_reply([OSError("broken"), "done"]).results == {"a": "done"}
    state = steps_after_early_reply([OSError("broken"), OSError("broken again")])
    assert (state.status, state.step) == (Status.COMPENSATING, "a")


def steps_after_early_reply(outcomes: Sequence[object]) -> SagaState:
    return Steps(outcomes).after(Reply("a", "paid"), Advance(3))


def test_a_failure_before_the_next_call_ends_the_step() -> None:
    """Its own compensation is called: the call that raised may have done something."""
    state = Steps([OSError("the answer is lost")]).after(Failure("a", "no money"), Advance(2))
    assert (state.status, state.step, state.error) == (Status.COMPENSATING, "a", "no money")


def test_answers_to_a_step_that_was_not_called_change_nothing() -> None:
    state = Steps(["done"]).after(Reply("b"), Failure("b", "no"), Reply("a"))
    assert (state.status, state.step, state.version, state.early) == (Status.RUNNING, "b", 2, None)


@pytest.mark.parametrize("result", [{None: 1}, {True: 1}, "\ud800", {"a": {1, 2}}])
def test_a_result_that_cannot_be_noted_is_an_error_of_the_step(result: object) -> None:
    state = Steps([result]).after()
    assert state.attempt == 2
    msgspec.json.encode(state)


def test_reasons_can_be_noted() -> None:
    state = Steps([StepFailed("not \ud800")]).after()
    assert (state.status, state.error) == (Status.COMPENSATED, "not ?")
    msgspec.json.encode(state)


def test_results_are_as_the_log_has_them() -> None:
    """Whichever runner calls the next step."""
    steps = Steps([{1: (2, 3)}, None])
    steps.after(Advance(2))
    assert steps.results == {"a": {"1": [2, 3]}}


def test_messages_are_checked_when_they_are_sent() -> None:
    call = StepCall(saga="s", id="1", step="a", key="s/1/a", attempt=1, input=None, results={})
    with pytest.raises(BadMessage, match="key of a message"):
        call.send("t", "x", key=7)  # type: ignore[arg-type]
    with pytest.raises(BadMessage, match="name of a topic"):
        call.send(7, "x")  # type: ignore[arg-type]
    assert call.sent == []
