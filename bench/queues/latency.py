"""How long messages and confirms take at half of what a broker can do: its own half, then a common one."""

import statistics
from collections.abc import Iterator
from functools import partial

from bench.processes import Served
from bench.queues import pacing, pairs
from bench.queues.connection import Connection
from bench.queues.contests import Contender, Figures, Outcome, Stage
from bench.queues.enqueueing import QUEUE
from bench.queues.figures import Row
from bench.queues.peers import Peer
from bench.queues.workers import Tally

SIZE = 1024
_SECTION = "Latency at half load: 1 KiB"
_FIGURES = ("delivered p50", "delivered p99", "confirmed p50", "confirmed p99")
_OWN = "half of its own throughput"


def latency(stage: Stage) -> Iterator[Row]:
    contenders = [Contender(peer.name, partial(_at_own_half, stage, peer)) for peer in stage.plan.peers]
    outcome = stage.contest(_OWN, contenders)
    rates = outcome.of("rate")
    yield Row(
        section=_SECTION,
        name="throughput, in and out at once",
        unit="messages/s",
        rounds=rates,
        missing=outcome.missing,
        is_ahead_the_aim=True,
    )
    yield from _rows(_OWN, outcome)
    if rates:
        common = min(statistics.median(each) for each in rates.values()) / 2
        name = f"{common:,.0f} messages/s for each"
        contenders = [Contender(peer.name, partial(_at, stage, peer, common)) for peer in stage.plan.peers]
        yield from _rows(name, stage.contest(name, contenders))


def _rows(name: str, outcome: Outcome) -> Iterator[Row]:
    for figure in _FIGURES:
        yield Row(
            section=_SECTION,
            name=f"{figure}, at {name}",
            unit="ms",
            rounds=outcome.of(figure),
            missing=outcome.missing,
            is_less_better=True,
            is_ahead_the_aim=True,
        )


def _at_own_half(stage: Stage, peer: Peer) -> Figures:
    plan = stage.plan
    with peer.start() as served:
        _declare(served)
        with stage.display.waiting("publishing and consuming"):
            rate = pairs.run(served.port, QUEUE, SIZE, plan.warm_up, plan.seconds).rate
        with Connection(served.port) as connection:
            connection.purge(QUEUE)
        return {"rate": rate, **_paced(stage, served, rate / 2)}


def _at(stage: Stage, peer: Peer, rate: float) -> Figures:
    with peer.start() as served:
        _declare(served)
        return _paced(stage, served, rate)


def _declare(served: Served) -> None:
    with Connection(served.port) as connection:
        connection.declare_queue(QUEUE)


def _paced(stage: Stage, served: Served, rate: float) -> Figures:
    plan = stage.plan
    pace = pacing.Pace(queue=QUEUE, size=SIZE, rate=rate, warm_up=plan.warm_up, seconds=plan.seconds)
    taken = Tally()
    with stage.display.counting(f"{rate:,.0f} messages/s", pace.count, taken) as watch:
        delays = pacing.run(served.port, pace, taken, watch)
    delivered, confirmed = delays.delivered, delays.confirmed
    figures = (delivered.p50, delivered.p99, confirmed.p50, confirmed.p99)
    return dict(zip(_FIGURES, figures, strict=True))
