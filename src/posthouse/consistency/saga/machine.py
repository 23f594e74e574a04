"""How a saga goes on: pure, but for the calls of steps.

    start ──► running ──done──► running … ──► completed
                │ ▲  └──WAIT──► waiting ──reply──► running, completed
          error └─┘                │
                │                  │ failure, timeout
                └──────► compensating ──done──► compensating … ──► compensated

A state has one version. What is called follows from the state alone, so to handle an event again calls the
same again, with the same idempotency key. Events that name another version, or a step that was not called yet
or is over, are outdated: they change nothing.

A step that raised is called again, but its first call may have reached the service: a failure that arrives in
between ends the step, and a reply is kept for the call that returns WAIT.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from posthouse.consistency.saga.definition import WAIT, Action, Saga, Sent, Step, StepCall, StepFailed
from posthouse.consistency.saga.events import Advance, Event, Failure, Reply, Start, Timeout
from posthouse.consistency.saga.state import SagaState, Status

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
_MOST_DOUBLINGS: Final = 20
_LONGEST_REASON: Final = 1000
_TOO_LARGE: Final = "its state is larger than its topic takes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """An event that comes at a time."""

    event: Event
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """To be noted in one step: the state, the next events, and what the step has sent."""

    state: SagaState
    events: Sequence[Event] = ()
    later: Sequence[Later] = ()
    sent: Sequence[Sent] = field(default=())


class Machine:
    """`schedule` is told of timeouts before a step is called that may have to wait."""

    def __init__(self, saga: Saga, now_ms: Callable[[], int], schedule: Callable[[str, Later], None]) -> None:
        self._saga = saga
        self._now_ms = now_ms
        self._schedule = schedule

    def handle(self, id: str, state: SagaState | None, event: Event) -> Change | None:
        """None if the event is outdated. Raises BadSaga."""
        if isinstance(event, Start):
            return self._begin(id, event) if state is None else None
        if state is None:
            return None
        if isinstance(event, Advance):
            return self._advance(state) if event.version == state.version else None
        if state.step is None:
            return None
        if state.status is Status.RUNNING:
            return self._answered_early(state, event)
        if state.status is not Status.WAITING:
            return None
        index = self._saga.index(state.step)
        if isinstance(event, Timeout):
            if event.version != state.version:
                return None
            return self._take_back(state, index, f"step {state.step!r} had no reply in time")
        if event.step != state.step:
            return None
        if isinstance(event, Reply):
            return self._done(state, index, event.result)
        return self._take_back(state, index - 1, event.reason)

    def failed(self, state: SagaState, reason: str) -> Change:
        """The step was called, and may have been done. Raises BadSaga."""
        assert state.step is not None
        index = self._saga.index(state.step)
        if state.status is Status.COMPENSATING:
            return self._again(state, reason)
        # A step that waits is not called again: there would be no event for it.
        if state.status is Status.RUNNING and state.attempt < self._saga.steps[index].attempts:
            return self._again(state, reason)
        return self._take_back(state, index, reason)

    def refused(self, state: SagaState, reason: str) -> Iterator[Change]:
        """What to note instead of a change that cannot be written: the first of these that can be. Raises
        BadSaga."""
        yield self.failed(state, reason)
        assert state.step is not None
        index = self._saga.index(state.step)
        # Compensations miss what is left out; but a state that cannot be written holds up other sagas.
        trimmed = msgspec.structs.replace(state, error=_TOO_LARGE, early=None)
        without_results = msgspec.structs.replace(trimmed, results={})
        for each in (trimmed, without_results, msgspec.structs.replace(without_results, input=None)):
            if state.status is Status.COMPENSATING:
                yield self._again(each, _TOO_LARGE)
            else:
                yield self._take_back(each, index, _TOO_LARGE)

    def _answered_early(self, state: SagaState, event: Event) -> Change | None:
        """By a service that a call reached which then raised."""
        if not isinstance(event, Reply | Failure) or event.step != state.step or state.attempt == 1:
            return None
        if isinstance(event, Failure):
            # The call may have done something besides: the step's own compensation is called, too.
            return self._take_back(state, self._saga.index(event.step), event.reason)
        if state.early is not None:
            return None
        later = self._next(state, attempt=state.attempt, early=event)
        return Change(state=later, events=[Advance(later.version)])

    def _begin(self, id: str, start: Start) -> Change:
        now = self._now_ms()
        state = SagaState(
            id=id,
            version=1,
            status=Status.RUNNING,
            step=self._saga.steps[0].name,
            input=start.input,
            started_ms=now,
            changed_ms=now,
        )
        return Change(state=state, events=[Advance(state.version)])

    def _advance(self, state: SagaState) -> Change | None:
        if state.step is None:
            return None
        index = self._saga.index(state.step)
        step = self._saga.steps[index]
        if state.status is Status.RUNNING:
            return self._act(state, index, step)
        if state.status is Status.COMPENSATING:
            return self._compensate(state, index, step)
        return None

    def _act(self, state: SagaState, index: int, step: Step) -> Change:
        call = self._call(state, step.name, "")
        deadline: int | None = None
        if step.timeout is not None:
            deadline = self._now_ms() + int(step.timeout * 1000)
            # Before the call: a step that waits has its timeout, whatever dies in between.
            self._schedule(state.id, Later(event=Timeout(state.version + 1), at_ms=deadline))
        try:
            result = _called(step.action, call)
        except StepFailed as failure:
            return self._take_back(state, index - 1, str(failure))
        except Exception as error:
            log.exception("saga %s: %s: step %s failed", self._saga.name, state.id, step.name)
            reason = f"step {step.name!r} failed: {error!r}"
            return self.failed(state, reason)
        if result is WAIT and state.early is not None:
            return self._done(state, index, state.early.result, call.sent)
        if result is WAIT:
            waiting = self._next(state, status=Status.WAITING, deadline_ms=deadline)
            return Change(state=waiting, sent=call.sent)
        return self._done(state, index, result, call.sent)

    def _compensate(self, state: SagaState, index: int, step: Step) -> Change:
        assert step.compensate is not None
        call = self._call(state, step.name, "/compensate")
        try:
            if _called(step.compensate, call) is WAIT:
                raise TypeError("a compensation cannot wait")
        except Exception as error:  # it has to succeed at some time
            log.exception("saga %s: %s: taking back %s failed", self._saga.name, state.id, step.name)
            return self._again(state, f"the compensation of {step.name!r} failed: {error!r}")
        return self._take_back(state, index - 1, state.error, call.sent)

    def _done(self, state: SagaState, index: int, result: Any, sent: Sequence[Sent] = ()) -> Change:
        results = {**state.results, self._saga.steps[index].name: result}
        if index + 1 == len(self._saga.steps):
            return Change(
                state=self._next(state, status=Status.COMPLETED, step=None, results=results, error=None),
                sent=sent,
            )
        following = self._saga.steps[index + 1].name
        later = self._next(state, status=Status.RUNNING, step=following, results=results, error=None)
        return Change(state=later, events=[Advance(later.version)], sent=sent)

    def _take_back(
        self, state: SagaState, index: int, reason: str | None, sent: Sequence[Sent] = ()
    ) -> Change:
        """The steps from `index` down to the first."""
        while index >= 0 and self._saga.steps[index].compensate is None:
            index -= 1
        error = None if reason is None else _shortened(reason)
        if index < 0:
            return Change(
                state=self._next(state, status=Status.COMPENSATED, step=None, error=error), sent=sent
            )
        later = self._next(state, status=Status.COMPENSATING, step=self._saga.steps[index].name, error=error)
        return Change(state=later, events=[Advance(later.version)], sent=sent)

    def _again(self, state: SagaState, reason: str) -> Change:
        pause = min(FIRST_PAUSE * 2 ** min(state.attempt - 1, _MOST_DOUBLINGS), LONGEST_PAUSE)
        error = _shortened(reason) if state.status is Status.RUNNING else state.error
        later = self._next(state, attempt=state.attempt + 1, error=error, early=state.early)
        event = Later(event=Advance(later.version), at_ms=self._now_ms() + int(pause * 1000))
        return Change(state=later, later=[event])

    def _next(self, state: SagaState, **changes: Any) -> SagaState:
        fresh = {"attempt": 1, "deadline_ms": None, "early": None, "version": state.version + 1}
        return msgspec.structs.replace(state, **{**fresh, "changed_ms": self._now_ms(), **changes})

    def _call(self, state: SagaState, step: str, suffix: str) -> StepCall:
        return StepCall(
            saga=self._saga.name,
            id=state.id,
            step=step,
            key=f"{self._saga.name}/{state.id}/{step}{suffix}",
            attempt=state.attempt,
            input=state.input,
            results=state.results,
        )


def _called(action: Action, call: StepCall) -> Any:
    result = action(call)
    if result is WAIT:
        return result
    # What cannot be noted is an error of the step. The log has {1: …} as {"1": …} and tuples as lists: later
    # steps get the same, whether this runner calls them or another one.
    json.dumps(result, allow_nan=False)
    return msgspec.json.decode(msgspec.json.encode(result))


def _shortened(reason: str) -> str:
    """As JSON can have it."""
    return reason[:_LONGEST_REASON].encode(errors="replace").decode()
