"""Rounds of one bank: customers at the counter, kills at random moments, and a verdict at the end of each."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random
from typing import Final

from tests.torture.bank.arena import Arena, Staff, opened
from tests.torture.bank.judging import Judge
from tests.torture.brokers import errors_in

CUSTOMERS: Final = 80
"""Of a round."""
MOST_KILLS: Final = 3
_LONGEST_ABSENCE: Final = 0.3
_FIRST_SPAN: Final = 1.0
_SHORTEST_SPAN: Final = 0.6
_LONGEST_SPAN: Final = 2.0
_BEYOND: Final = 1.3
"""Kills also strike after the last customer, while messages are on their way."""


class _Event(IntEnum):
    KILL = 0
    START = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    rounds: int = 0
    transfers: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    anomalies: list[str] = field(default_factory=list)
    seconds: float = 0.0
    logs: dict[str, str] = field(default_factory=dict)
    """Of all processes, if there are anomalies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    moment: float
    target: str
    absence: float


def run_rounds(
    place: Path,
    *,
    rounds: int,
    seed: int,
    staff: Staff | None = None,
    targets: Sequence[str] = (),
    most_kills: int = MOST_KILLS,
    on_round: Callable[[int], None] = lambda number: None,
) -> Outcome:
    """Ends with the first round that finds something. `targets` are all processes if there are none."""
    outcome = Outcome()
    begun = time.monotonic()
    with opened(place, staff or Staff()) as arena:
        judge = Judge(arena)
        chance = Random(seed)
        span = _FIRST_SPAN
        while outcome.rounds < rounds and not outcome.anomalies:
            opened_at = time.monotonic()
            arena.open_counter(CUSTOMERS, chance.randrange(1 << 40))
            plan = _plan(chance, list(targets) or arena.targets, most_kills, span)
            outcome.kills.update(_carried_out(arena, plan))
            outcome.anomalies += judge.verdict()
            outcome.rounds += 1
            # The next kills are spread over the time that customers take on this machine.
            span = max(_SHORTEST_SPAN, min(_LONGEST_SPAN, (time.monotonic() - opened_at) / 2))
            on_round(outcome.rounds)
        outcome.anomalies += errors_in(arena.broker_log)
        outcome.transfers = 0 if outcome.anomalies else judge.transfers
        if outcome.anomalies:
            outcome.logs = {each.name: each.read_text(errors="replace") for each in arena.logs}
    outcome.seconds = time.monotonic() - begun
    return outcome


def _plan(chance: Random, targets: Sequence[str], most: int, span: float) -> list[Kill]:
    return [
        Kill(
            moment=chance.random() * span * _BEYOND,
            target=chance.choice(targets),
            absence=chance.random() * _LONGEST_ABSENCE,
        )
        for _ in range(chance.randint(1, most))
    ]


def _carried_out(arena: Arena, plan: Sequence[Kill]) -> list[str]:
    """Several may be dead at the same time. Returns what was killed."""
    begun = time.monotonic()
    killed: list[str] = []
    dead: set[str] = set()
    events = [(each.moment, _Event.KILL, each.target) for each in plan]
    events += [(each.moment + each.absence, _Event.START, each.target) for each in plan]
    for moment, event, target in sorted(events):
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        if event is _Event.START and target in dead:
            arena.start(target)
            dead.remove(target)
        elif event is _Event.KILL and target not in dead and arena.kill(target):
            killed.append(target)
            dead.add(target)
    return killed
