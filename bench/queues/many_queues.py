"""Queues that are declared, used and deleted, one after the other on one connection: what each step takes."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from bench.queues.connection import Connection
from bench.queues.contests import Contender, Figures, Stage
from bench.queues.figures import Row
from bench.queues.peers import Peer

_SECTION = "Many queues, one step after the other"
_BODY = b"x" * 128
_STEPS = ("declare", "first publish and get", "next publish and get", "delete")


def many_queues(stage: Stage) -> Iterator[Row]:
    count = stage.plan.queues
    contenders = [Contender(peer.name, partial(_steps, stage, peer, count)) for peer in stage.plan.peers]
    outcome = stage.contest(f"{count:,} queues", contenders)
    for step in _STEPS:
        yield Row(
            section=_SECTION,
            name=f"{step}, of {count:,} queues",
            unit="ms each",
            rounds=outcome.of(step),
            missing=outcome.missing,
            is_less_better=True,
        )


def _steps(stage: Stage, peer: Peer, count: int) -> Figures:
    names = [f"many-{number}" for number in range(count)]
    with peer.start() as served, Connection(served.port) as connection:
        connection.confirm()

        def use(name: str) -> None:
            connection.publish(name, _BODY)
            assert connection.get(name) == _BODY

        steps: tuple[Callable[[str], None], ...] = (
            connection.declare_queue,
            use,
            use,
            connection.delete_queue,
        )
        return {
            step: _milliseconds(stage, step, each, names) for step, each in zip(_STEPS, steps, strict=True)
        }


def _milliseconds(stage: Stage, step: str, do: Callable[[str], None], names: list[str]) -> float:
    """Of one queue, on the average."""
    with stage.display.waiting(step):
        began = time.perf_counter()
        for name in names:
            do(name)
        return (time.perf_counter() - began) * 1000 / len(names)
