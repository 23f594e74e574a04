"""Peers that do the same work take turns, round by round, each round starting with another one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.queues.connection import Refused
from bench.queues.display import Display
from bench.queues.peers import AMQP_PEERS, REDIS_PEERS, Absent, Peer
from bench.queues.scanning import OutOfStep
from bench.queues.workers import Load, LoadFailed, Tally, Worker

Figures = Mapping[str, float]
"""By name, what one peer reached in one round."""
FAILURES = (Absent, LoadFailed, OutOfStep, Refused, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is to be done."""

    messages: int = 1_000_000
    sizes: tuple[int, ...] = (128, 512, 1024, 10_240)
    rounds: int = 3
    seconds: float = 15.0
    """Of every measurement that is not a count of messages."""
    backlog: int = 10_000_000
    rabbitmq_backlog: int = 2_000_000
    queues: int = 1_000
    """That are declared, used and deleted one after the other."""
    peers: tuple[Peer, ...] = AMQP_PEERS
    backlog_peers: tuple[Peer, ...] = AMQP_PEERS
    redis_peers: tuple[Peer, ...] = REDIS_PEERS

    @property
    def warm_up(self) -> float:
        return min(self.seconds / 3, 2.0)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    run: Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All rounds of all contenders."""

    rounds: Mapping[str, Sequence[Figures]]
    missing: Mapping[str, str]

    def of(self, figure: str) -> dict[str, tuple[float, ...]]:
        """One figure, by contender."""
        return {
            name: tuple(each[figure] for each in rounds)
            for name, rounds in self.rounds.items()
            if rounds and figure in rounds[0]
        }


@dataclass(slots=True)
class Stage:
    """What the scenarios share."""

    plan: Plan
    display: Display
    absent: dict[str, str] = field(default_factory=dict)
    """Peers that did not even start, and why: they are not tried again."""

    def drive(self, doing: str, port: int, function: Callable[..., Load], *args: object, count: int) -> Load:
        """A load of so many messages in a process of its own, with its progress."""
        done = Tally()
        with self.display.counting(doing, count, done) as watch:
            return Worker(function, port, *args, count, done).result(watch)

    def contest(self, subject: str, contenders: Sequence[Contender]) -> Outcome:
        rounds: dict[str, list[Figures]] = {each.name: [] for each in contenders}
        missing = {each.name: self.absent[each.name] for each in contenders if each.name in self.absent}
        for number in range(self.plan.rounds):
            first = number % len(contenders)
            for each in (*contenders[first:], *contenders[:first]):
                if each.name in missing:
                    continue
                self.display.stage = f"round {number + 1} of {self.plan.rounds}: {each.name}, {subject}"
                try:
                    rounds[each.name].append(each.run())
                except FAILURES as error:
                    missing[each.name] = str(error)
                    rounds[each.name].clear()
                    if isinstance(error, Absent):
                        self.absent[each.name] = str(error)
                    self.display.say(f"  {each.name}, {subject}: not measured: {error}")
        return Outcome(rounds, missing)
