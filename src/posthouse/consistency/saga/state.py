"""The state of one saga, as the topic of states has it: JSON, with the id as key."""

from enum import StrEnum
from typing import Any

import msgspec

from posthouse.consistency.saga.events import Reply


class Status(StrEnum):
    RUNNING = "running"
    """A step is to be called."""
    WAITING = "waiting"
    """A step was called, and waits for its reply."""
    COMPENSATING = "compensating"
    """A compensation is to be called."""
    COMPLETED = "completed"
    COMPENSATED = "compensated"

    @property
    def is_final(self) -> bool:
        return self in (Status.COMPLETED, Status.COMPENSATED)


class SagaState(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    version: int
    """One more with every change. Events name the version that they are about: others are outdated."""
    status: Status
    step: str | None
    """That is called, waits, or is taken back; None at the end."""
    attempt: int = 1
    input: Any = None
    results: dict[str, Any] = {}
    error: str | None = None
    """Why it is taken back, or why the last attempt failed."""
    started_ms: int
    changed_ms: int
    deadline_ms: int | None = None
    """Until when a step that waits may wait."""
    early: Reply | None = None
    """A reply that came while the step was to be called again."""
