"""What becomes of a half message, and who says so."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Decision(StrEnum):
    COMMIT = "commit"
    ROLL_BACK = "roll back"
    UNKNOWN = "unknown"
    """Not now: the producers are asked again after 30 s, fifteen times in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """Prepared, and invisible until it is committed."""

    id: int
    """Of the broker."""
    name: str
    """Of the application, unique in its group: by this it finds its transaction. Empty if it has none."""
    topic: str
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]]


WasCommitted: TypeAlias = Callable[[HalfMessage], Decision | bool]
"""Looks whether the transaction that the message is about was committed. A bool is COMMIT or ROLL_BACK."""
AsyncWasCommitted: TypeAlias = Callable[[HalfMessage], Awaitable[Decision | bool]]


@dataclass(slots=True)
class CheckCounts:
    """Answers to checks, since the start."""

    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    """And those where the callback raised."""
    errors: int = 0
    """Calls to the broker that failed."""


def decision_of(answer: object) -> Decision:
    """What a callback has returned. Raises TypeError."""
    if isinstance(answer, Decision):
        return answer
    if isinstance(answer, bool):
        return Decision.COMMIT if answer else Decision.ROLL_BACK
    raise TypeError(f"was_committed returns a Decision, true or false, not {answer!r}")
