"""How much is to be done, and what the scenarios share."""

from dataclasses import dataclass

from bench.queues.display import Display


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    connections: int = 10_000
    topics: int = 50_000
    records: int = 100_000_000
    rounds: int = 10
    """Of those measurements that take turns."""
    seconds: float = 20.0
    """Of every measurement that is not a count of something."""


@dataclass(slots=True)
class Stage:
    plan: Plan
    display: Display
