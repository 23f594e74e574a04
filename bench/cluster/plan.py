"""How much is to be done, and what the scenarios share."""

from dataclasses import dataclass

from bench.cluster.servers import Servers
from bench.queues.display import Display


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seconds: float = 3.0
    """Of each measurement of a load."""
    rounds: int = 3
    partitions: int = 100_000
    groups: int = 10_000
    connections: int = 20_000
    """Of clients, over three brokers."""
    idle_connections: int = 2_000
    """Of one protocol at one broker."""
    history_bytes: int = 600_000_000
    """Of each topic whose history is read."""


@dataclass(frozen=True, slots=True)
class Stage:
    plan: Plan
    display: Display
    servers: Servers
