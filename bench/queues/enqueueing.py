"""A durable queue filled with confirmed persistent messages, and emptied with acks."""

from collections.abc import Callable, Iterator
from functools import partial

from bench.processes import Served
from bench.queues import loads, redis_loads, sink
from bench.queues.connection import Connection
from bench.queues.contests import Contender, Figures, Stage
from bench.queues.figures import Row
from bench.queues.peers import Peer, free_memory
from bench.queues.workers import Load, LoadFailed, Tally, Worker

QUEUE = "bench"
SINK = "the generator alone"
_REDIS_SHARE = 0.8
"""Of the free memory: more of it Redis is not asked to hold."""
_REDIS_OVERHEAD = 100
"""Bytes that Redis is reckoned to need beside a message."""
_VERBS = ("publish", "consume")


def enqueueing(stage: Stage) -> Iterator[Row]:
    cpu: list[Row] = []
    for size in stage.plan.sizes:
        outcome = stage.contest(f"{size:,} B", list(_contenders(stage, size)))
        for verb in _VERBS:
            yield Row(
                section=f"One queue: {stage.plan.messages:,} messages in, then out",
                name=f"{verb} {size:,} B",
                unit="messages/s",
                rounds=outcome.of(verb),
                missing=outcome.missing,
                is_ahead_the_aim=True,
            )
            cpu.append(
                Row(
                    section="What that took of the broker's CPU",
                    name=f"{verb} {size:,} B",
                    unit="µs/message",
                    rounds=outcome.of(_cpu(verb)),
                    missing=outcome.missing,
                    is_less_better=True,
                )
            )
    yield from cpu


def _contenders(stage: Stage, size: int) -> Iterator[Contender]:
    for peer in stage.plan.peers:
        yield Contender(peer.name, partial(_amqp, stage, peer, size))
    for peer in stage.plan.redis_peers:
        for kind in redis_loads.Kind:
            yield Contender(f"{peer.name}, {kind}", partial(_redis, stage, peer, kind, size))
    yield Contender(SINK, partial(_sink, stage, size))


def _amqp(stage: Stage, peer: Peer, size: int) -> Figures:
    with peer.start() as served:
        with Connection(served.port) as connection:
            connection.declare_queue(QUEUE)
        published = _measured(stage, served, "publish", loads.publish, "", QUEUE, size)
        consumed = _measured(stage, served, "consume", loads.consume, [QUEUE])
    return {**published, **consumed}


def _redis(stage: Stage, peer: Peer, kind: redis_loads.Kind, size: int) -> Figures:
    if stage.plan.messages * (size + _REDIS_OVERHEAD) > free_memory() * _REDIS_SHARE:
        raise LoadFailed("it keeps everything in memory, and there is not enough")
    with peer.start() as served:
        redis_loads.prepare(served.port, kind)
        published = _measured(stage, served, "publish", redis_loads.publish, kind, size)
        consumed = _measured(stage, served, "consume", redis_loads.consume, kind, size)
    return {**published, **consumed}


def _measured(
    stage: Stage, served: Served, verb: str, function: Callable[..., Load], *args: object
) -> Figures:
    before = served.cpu_seconds()
    load = stage.drive(verb, served.port, function, *args, count=stage.plan.messages)
    spent = served.cpu_seconds() - before
    return {verb: load.rate, _cpu(verb): spent / load.count * 1e6}


def _sink(stage: Stage, size: int) -> Figures:
    """What the generator reaches where there is no broker to wait for: nothing above that can be measured."""
    return {
        "publish": _sunk(stage, size, "publish", loads.publish, "", QUEUE, size),
        "consume": _sunk(stage, size, "consume", loads.consume, [QUEUE]),
    }


def _sunk(stage: Stage, size: int, verb: str, function: Callable[..., Load], *args: object) -> float:
    port = Tally()
    served = Worker(sink.serve, port, sink.Expected(size, stage.plan.messages))
    try:
        served.wait_for(port)
        return stage.drive(verb, port.value, function, *args, count=stage.plan.messages).rate
    finally:
        served.end()


def _cpu(verb: str) -> str:
    return f"{verb} CPU"
