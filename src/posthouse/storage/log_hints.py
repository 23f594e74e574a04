"""What brokers that share a storage tell each other of their commits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHint:
    """Bounds of a log after a commit. The database is the truth: a hint may be lost, and may come late."""

    log: int
    """The number of the log in the storage."""
    start: int
    end: int
    stable: int


LogsHinted = Callable[[Sequence[LogHint]], None]
"""It must not raise."""
