"""How much is to be done, and what the scenarios share."""

from dataclasses import dataclass

from bench.cluster.servers import Servers
from bench.queues.display import Display


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seconds: float = 5.0
    """Of each measurement of a load."""
    rounds: int = 3
    partitions: int = 100_000
    history_bytes: int = 600_000_000
    """Of each topic whose history is read."""


@dataclass(frozen=True, slots=True)
class Stage:
    plan: Plan
    display: Display
    servers: Servers
