"""The machine of sagas against everything that can happen to it: runners that die before a change is noted,
events that come twice, late or in another order, steps that fail, wait, or were done although they failed."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from posthouse.consistency.saga.definition import WAIT, Saga, StepCall, StepFailed
from posthouse.consistency.saga.events import Event, Failure, Reply, Start, Timeout
from posthouse.consistency.saga.machine import Change, Later, Machine
from posthouse.consistency.saga.state import SagaState, Status

STEPS = ("a", "b", "c", "d")
OUTCOMES = st.sampled_from(["done", "wait", "refused", "broken", "broken after it was done"])


class Sagas(RuleBasedStateMachine):
    """One saga; a log of its events; the state that is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Event] = []
        self.next = 0
        self.later: list[Later] = []
        self.scheduled: list[Later] = []
        self.state: SagaState | None = None
        self.history: list[SagaState] = []
        self.outcome = "done"
        self.actions: list[str] = []
        """Steps that were called, in order, also those of runners that died."""
        self.done: set[str] = set()
        """Steps that may have had an effect which is not taken back yet."""
        self.undone: list[str] = []
        """Compensations that were called and noted."""
        self.keys: dict[str, set[str]] = {}
        self.due: dict[int, int] = {}
        """When versions that try again are to be called."""
        self.now = 0

    @initialize(compensable=st.sets(st.sampled_from(STEPS)), timeouts=st.sets(st.sampled_from(STEPS)))
    def define(self, compensable: set[str], timeouts: set[str]) -> None:
        self.compensable = compensable
        saga = Saga("order")
        for name in STEPS:
            saga.step(
                name,
                self.act,
                compensate=self.take_back if name in compensable else None,
                timeout=1 if name in timeouts else None,
                attempts=2,
            )
        self.machine = Machine(saga, lambda: self.now, lambda _, later: self.scheduled.append(later))
        self.log.append(Start({"item": "tea"}))

    def act(self, call: StepCall) -> Any:
        assert self.state is not None and self.state.status is Status.RUNNING
        assert self.now >= self.due.get(self.state.version, 0)
        assert call.input == {"item": "tea"} and list(call.results) == list(STEPS[: STEPS.index(call.step)])
        self.actions.append(call.step)
        self.keys.setdefault(call.step, set()).add(call.key)
        if self.outcome == "refused":
            # It says that it has done nothing, and so it has not before either: it knows its key.
            self.done.discard(call.step)
            raise StepFailed("no")
        if self.outcome == "broken":
            raise ValueError("broken")
        self.done.add(call.step)
        if self.outcome == "broken after it was done":
            raise ValueError("broken")
        call.send("t", call.step)
        return WAIT if self.outcome == "wait" else call.step

    def take_back(self, call: StepCall) -> None:
        assert self.state is not None and self.state.status is Status.COMPENSATING
        assert self.now >= self.due.get(self.state.version, 0)
        self.keys.setdefault(f"-{call.step}", set()).add(call.key)
        if self.outcome != "done":
            raise ValueError("not now")
        self.done.discard(call.step)

    @precondition(lambda self: self.next < len(self.log))
    @rule(outcome=OUTCOMES, dies=st.booleans(), takes=st.sampled_from([0, 400]))
    def handle(self, outcome: str, dies: bool, takes: int) -> None:
        """The next event, by a runner that may die before it notes what has changed."""
        self.now += takes
        self.outcome = outcome
        before = self.state
        change = self.machine.handle("1", self.state, self.log[self.next])
        if dies:
            return
        self.next += 1
        if change is not None:
            self.note(before, change)

    def note(self, before: SagaState | None, change: Change) -> None:
        state = change.state
        assert state.version == (1 if before is None else before.version + 1)
        if before is not None and before.status is Status.COMPENSATING and state.step != before.step:
            assert before.step is not None
            self.undone.append(before.step)
        if (
            before is not None
            and before.status is Status.WAITING
            and "no reply in time" in (state.error or "")
        ):
            # It counts from the first call, also if its runner died.
            own = [each.at_ms for each in self.scheduled if each.event == Timeout(before.version)]
            assert self.now >= min(own)
        self.state = state
        self.history.append(state)
        for later in change.later:
            self.due[state.version] = later.at_ms
        self.log += change.events
        self.later += change.later

    @precondition(lambda self: self.later)
    @rule(data=st.data())
    def time_comes(self, data: st.DataObject) -> None:
        later = data.draw(st.sampled_from(self.later))
        self.later.remove(later)
        self.now = max(self.now, later.at_ms)
        self.log.append(later.event)

    @precondition(lambda self: self.scheduled)
    @rule(data=st.data())
    def timeout_comes(self, data: st.DataObject) -> None:
        later = data.draw(st.sampled_from(self.scheduled))
        assert isinstance(later.event, Timeout)
        self.now = max(self.now, later.at_ms)
        self.log.append(later.event)

    @rule(data=st.data())
    def an_event_comes_again(self, data: st.DataObject) -> None:
        self.log.append(data.draw(st.sampled_from(self.log)))

    @rule(step=st.sampled_from(STEPS))
    def reply(self, step: str) -> None:
        self.log.append(Reply(step, step))

    @precondition(
        lambda self: (
            self.state is not None
            and (
                self.state.status is Status.WAITING
                or (self.state.status is Status.RUNNING and self.state.attempt > 1)
            )
        )
    )
    @rule()
    def fail(self) -> None:
        """Who fails a step that was called has taken care that it has no effect."""
        assert self.state is not None and self.state.step is not None
        if self.next == len(self.log):
            self.done.discard(self.state.step)
            self.log.append(Failure(self.state.step, "no"))

    @invariant()
    def one_end(self) -> None:
        ends = [each.status for each in self.history if each.status.is_final]
        assert len(ends) <= 1
        assert not ends or self.history[-1].status.is_final

    @invariant()
    def what_is_completed_was_done_and_not_taken_back(self) -> None:
        if self.state is not None and self.state.status is Status.COMPLETED:
            assert set(self.actions) == set(STEPS) and self.undone == []
            assert self.state.results == {step: step for step in STEPS}

    @invariant()
    def what_is_compensated_has_no_effect_left(self) -> None:
        if self.state is not None and self.state.status is Status.COMPENSATED:
            assert self.done & self.compensable == set()
            assert self.state.error is not None

    @invariant()
    def it_is_taken_back_in_reverse_order(self) -> None:
        assert self.undone == sorted(set(self.undone), reverse=True)

    @invariant()
    def nothing_is_begun_while_it_is_taken_back(self) -> None:
        statuses = [each.status for each in self.history]
        if Status.COMPENSATING in statuses:
            rest = statuses[statuses.index(Status.COMPENSATING) :]
            assert set(rest) <= {Status.COMPENSATING, Status.COMPENSATED}

    @invariant()
    def a_step_has_one_key(self) -> None:
        assert all(len(keys) == 1 for keys in self.keys.values())
        assert len({key for keys in self.keys.values() for key in keys}) == len(self.keys)


TestSagas = Sagas.TestCase
TestSagas.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_compensation_for_an_unknown_outcome_and_none_for_a_refusal() -> None:
    """The step itself is taken back if it may have been done."""

    def ends(outcome: Exception | None) -> list[str]:
        taken_back: list[str] = []

        def act(call: StepCall) -> None:
            if call.step == "b" and outcome is not None:
                raise outcome

        def undo(call: StepCall) -> None:
            taken_back.append(call.step)

        saga = Saga("s").step("a", act, compensate=undo).step("b", act, compensate=undo, attempts=2)
        machine = Machine(saga, lambda: 0, lambda *_: None)
        state: SagaState | None = None
        events: list[Event] = [Start()]
        while events:
            change = machine.handle("1", state, events.pop(0))
            assert change is not None
            state = change.state
            events += [*change.events, *(each.event for each in change.later)]
        return taken_back

    assert ends(None) == []
    assert ends(StepFailed("no stock")) == ["a"]
    assert ends(ValueError("who knows")) == ["b", "a"]


@pytest.mark.parametrize("result", [float("nan"), object(), {"a": {1, 2}}])
def test_a_result_that_json_does_not_have_is_an_error_of_the_step(result: object) -> None:
    saga = Saga("s").step("a", lambda _: result, attempts=1)
    machine = Machine(saga, lambda: 0, lambda *_: None)
    begun = machine.handle("1", None, Start())
    assert begun is not None
    change = machine.handle("1", begun.state, begun.events[0])
    assert change is not None and change.state.status is Status.COMPENSATED


def test_outdated_events_change_nothing() -> None:
    """A timeout of a step that has its reply, and what was to be called before an error."""
    outcomes: list[object] = [WAIT, WAIT, ValueError("broken")]
    scheduled: list[Later] = []

    def act(_: StepCall) -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    saga = Saga("s").step("a", act, timeout=1).step("b", act, timeout=1).step("c", act)
    machine = Machine(saga, lambda: 0, lambda _, later: scheduled.append(later))
    state: SagaState | None = None
    advances: list[Event] = []

    def handled(event: Event) -> SagaState | None:
        nonlocal state
        change = machine.handle("1", state, event)
        if change is None:
            return None
        advances.extend(change.events)
        state = change.state
        return state

    assert handled(Start()) and handled(advances[-1]) and handled(Reply("a"))
    assert handled(Start()) is None and handled(Reply("a")) is None and handled(scheduled[0].event) is None
    assert handled(advances[-1]) and handled(advances[-1]) is None
    assert handled(scheduled[0].event) is None and handled(Failure("a", "no")) is None
    assert handled(Reply("b")) and handled(advances[-1])
    assert state is not None and (state.step, state.attempt, state.status) == ("c", 2, Status.RUNNING)
    assert handled(advances[-1]) is None, "it is tried again later"
    assert [each.event for each in scheduled] == [Timeout(2), Timeout(4)]
