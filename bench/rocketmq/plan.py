"""How much is to be done."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    """Of what takes turns; backlog and delay are measured once."""
    seconds: float = 6.0
    """Of every measurement that is not a count of messages."""
    size: int = 1024
    """Bytes of a message, but for backlog and delay."""
    consumed: int = 200_000
    backlog: int = 10_000_000
    delayed: int = 1_000_000
    sent_at_least: int = 4000
    """Delayed messages a second that a client sends on the slowest machine: all are due when they have been
    sent at this rate."""


QUICK = Plan(rounds=1, seconds=1.0, consumed=5000, backlog=20_000, delayed=2000, sent_at_least=250)
"""To see whether the benchmark works."""
