"""What a saga does: steps, and what takes each of them back."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

from posthouse.consistency.contents import Content, Headers, encoded, encoded_headers
from posthouse.consistency.errors import BadMessage, BadSaga
from posthouse.consistency.saga.topics import events_topic, state_topic

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
ATTEMPTS: Final = 5


class StepFailed(Exception):
    """Raised by a step that has done nothing and never will: the steps before it are taken back."""


class Waiting:
    """See WAIT."""

    def __repr__(self) -> str:
        return "WAIT"


WAIT: Final = Waiting()
"""Returned by a step that somebody else ends, with `SagaClient.reply` or `fail`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message of a step: in the log together with the progress of its saga."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """What a step or a compensation is called with."""

    saga: str
    id: str
    step: str
    key: str
    """The idempotency key: the same whenever this step of this saga is called. A step may be called again
    after it was done, if its runner died."""
    attempt: int
    input: Any
    """What the saga was started with."""
    results: Mapping[str, Any]
    """Of the steps that are done, by name."""
    sent: list[Sent] = field(default_factory=list)

    def send(
        self,
        topic: str,
        value: Content,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
    ) -> None:
        """A message that is visible when the step is noted as done, or as waiting, and only then. Raises
        BadMessage."""
        if not isinstance(topic, str):
            raise BadMessage(f"the name of a topic is text, not {topic!r}")
        if not isinstance(key, bytes | str | None):
            raise BadMessage(f"the key of a message is bytes, text or None, not {key!r}; encode it before")
        encoded_key = key.encode() if isinstance(key, str) else key
        sent = Sent(topic=topic, key=encoded_key, value=encoded(value), headers=encoded_headers(headers))
        self.sent.append(sent)


Action: TypeAlias = Callable[[StepCall], Any]
"""Returns a result that JSON can have, or WAIT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    action: Action
    compensate: Action | None
    timeout: float | None
    attempts: int


class Saga:
    def __init__(self, name: str) -> None:
        """Raises BadSaga."""
        if not _NAME.fullmatch(name):
            raise BadSaga(f"{name!r} is no name of a saga; use letters, digits, '.', '_' and '-'")
        self.name = name
        self.steps: list[Step] = []

    def step(
        self,
        name: str,
        action: Action,
        *,
        compensate: Action | None = None,
        timeout: float | None = None,
        attempts: int = ATTEMPTS,
    ) -> Self:
        """The next step. `timeout` is how many seconds a step that returns WAIT may wait for its reply. An
        error is tried again, `attempts` times in all. After an error or a timeout the step may have been
        done: its own compensation is called, too. Raises BadSaga."""
        if not _NAME.fullmatch(name):
            raise BadSaga(f"{name!r} is no name of a step; use letters, digits, '.', '_' and '-'")
        if any(each.name == name for each in self.steps):
            raise BadSaga(f"saga {self.name!r} has a step {name!r} already")
        if attempts < 1 or (timeout is not None and timeout <= 0):
            raise BadSaga(f"step {name!r} needs at least one attempt, and a timeout above 0")
        self.steps.append(
            Step(name=name, action=action, compensate=compensate, timeout=timeout, attempts=attempts)
        )
        return self

    @property
    def events_topic(self) -> str:
        return events_topic(self.name)

    @property
    def state_topic(self) -> str:
        return state_topic(self.name)

    def index(self, step: str) -> int:
        """Raises BadSaga."""
        for index, each in enumerate(self.steps):
            if each.name == step:
                return index
        raise BadSaga(
            f"saga {self.name!r} is at a step {step!r}, which this runner does not have; run the version "
            "that has it until these sagas have ended"
        )
