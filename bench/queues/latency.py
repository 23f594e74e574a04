"""How long a message takes when the broker has half of what it can do: its own half, and a common one."""

import statistics
from collections.abc import Iterator
from functools import partial

from bench.queues import pacing, pairs
from bench.queues.connection import Connection
from bench.queues.contests import Contender, Figures, Outcome, Stage
from bench.queues.enqueueing import QUEUE
from bench.queues.figures import Row
from bench.queues.peers import Peer
from bench.queues.workers import Tally

SIZE = 1024
_SECTION = "Latency from publisher to consumer at half load: 1 KiB"


def latency(stage: Stage) -> Iterator[Row]:
    contenders = [Contender(peer.name, partial(_throughput, stage, peer)) for peer in stage.plan.peers]
    reached = stage.contest("in and out at once", contenders)
    yield Row(
        section=_SECTION,
        name="throughput, in and out at once",
        unit="messages/s",
        rounds=reached.of("rate"),
        missing=reached.missing,
        is_ahead_the_aim=True,
    )
    halves = {name: statistics.median(rates) / 2 for name, rates in reached.of("rate").items()}
    if not halves:
        return
    common = min(halves.values())
    for name, paces in (
        ("half of its own throughput", halves),
        (f"{common:,.0f} messages/s for each", dict.fromkeys(halves, common)),
    ):
        contenders = [
            Contender(peer.name, partial(_paced, stage, peer, paces[peer.name]))
            for peer in stage.plan.peers
            if peer.name in paces
        ]
        outcome = stage.contest(name, contenders)
        yield from _rows(name, Outcome(outcome.rounds, {**reached.missing, **outcome.missing}))


def _rows(name: str, outcome: Outcome) -> Iterator[Row]:
    for figure in ("p50", "p99"):
        yield Row(
            section=_SECTION,
            name=f"{figure} at {name}",
            unit="ms",
            rounds=outcome.of(figure),
            missing=outcome.missing,
            is_less_better=True,
            is_ahead_the_aim=True,
        )


def _throughput(stage: Stage, peer: Peer) -> Figures:
    plan = stage.plan
    with peer.start() as served, stage.display.waiting("publishing and consuming"):
        with Connection(served.port) as connection:
            connection.declare_queue(QUEUE)
        return {"rate": pairs.run(served.port, QUEUE, SIZE, plan.warm_up, plan.seconds).rate}


def _paced(stage: Stage, peer: Peer, rate: float) -> Figures:
    plan = stage.plan
    pace = pacing.Pace(queue=QUEUE, size=SIZE, rate=rate, warm_up=plan.warm_up, seconds=plan.seconds)
    taken = Tally()
    with peer.start() as served:
        with Connection(served.port) as connection:
            connection.declare_queue(QUEUE)
        with stage.display.counting(f"{rate:,.0f} messages/s", pace.count, taken) as watch:
            latencies = pacing.run(served.port, pace, taken, watch)
    return {"p50": latencies.p50, "p99": latencies.p99}
