"""More demand than can be met: who asks for too much is slowed, memory is bounded, and others are served."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from bench.queues.pacing import Latencies
from bench.queues.workers import Tally, Worker
from bench.scale.brokers import Broker, scratch
from bench.scale.figures import Row
from bench.scale.flooding import Demand, Flooded
from bench.scale.overload_amqp import AmqpScene
from bench.scale.overload_kafka import ASKED_FOR, BATCH_BYTES, KafkaScene
from bench.scale.plan import Stage

MIB = 1 << 20
BUDGET = 256 * MIB
BESIDE = 64 * MIB
"""What nobody counts."""
LEASE = 1024
"""Bytes that the broker takes for a message that is delivered and not acknowledged, beside its own."""
MAX_UNACKED = 20_000
TOO_MUCH = 2.0
"""Times the capacity."""
PRODUCERS = 2
STALLED = 100
FORGETFUL = 5
WINDOWS = {"batches": 64, "messages": 2000}
MOST_LATENCY = 100.0
NOTE = f"""A well-behaved client makes 100 requests a second; the latency of a request counts from the
moment it was due. First the client is alone. Then {PRODUCERS} producers write as fast as they get
responses, each with {WINDOWS["batches"]} batches of {BATCH_BYTES // 1024} KiB or {WINDOWS["messages"]:,}
messages of 1 KiB in flight: that is the capacity. Then the overload: the producers offer {TOO_MUCH:g}
times the capacity and do not wait for responses. {STALLED} stalled consumers each request
{ASKED_FOR // 1_000_000} MB again and again (AMQP: without a prefetch), read nothing, and reconnect when
they are closed. Over AMQP, {FORGETFUL} more read everything and acknowledge nothing. In the middle of
that the broker is killed with kill -9 and started again, and everything that was acknowledged is read
back.

The memory budget is `inflight_bytes` ({BUDGET // MIB} MiB here): unanswered requests and unsent responses
of all connections together. Each connection has at most about `connection_buffer_bytes` (8 MiB) of it.
Over AMQP an unacknowledged message takes up to {LEASE} bytes more, which `max_unacked` ({MAX_UNACKED:,}
here) bounds for each channel. {BESIDE // MIB} MiB are allowed on top for memory that is not accounted.
Latency is *bounded* if the p99 is below {MOST_LATENCY:g} ms."""

_SETTINGS = {"inflight_bytes": BUDGET, "max_unacked": MAX_UNACKED}


class Scene(Protocol):
    """What one protocol does in the scenario."""

    @property
    def section(self) -> str: ...

    @property
    def unit(self) -> str:
        """What is acknowledged."""

    @property
    def piece_bytes(self) -> int:
        """The size of that."""

    def leases(self, budget: int) -> int:
        """Messages that may be delivered and not acknowledged, where so many bytes wait for their clients."""

    def prepare(self, broker: Broker) -> None: ...

    def behave_well(self, broker: Broker, when: str, seconds: float) -> Mapping[str, Latencies]:
        """How a well-behaved client fares, by what it asks for."""

    def fill(self, broker: Broker, demand: Demand, is_over: Tally) -> list[Worker[Flooded]]:
        """Producers that behave; connected when this returns, as those of the other two."""

    def flood(self, broker: Broker, demand: Demand, is_over: Tally) -> list[Worker[Flooded]]:
        """Producers that do not."""

    def offend(self, broker: Broker, is_over: Tally) -> list[Worker[int]]:
        """Consumers that do not: how many of their connections were ended."""

    def lost(self, broker: Broker, producer: int, acknowledged: int) -> int:
        """How much of what `flood` had acknowledged is not there."""


def overload(stage: Stage) -> Iterator[Row]:
    scenes: list[Scene] = [
        KafkaScene(PRODUCERS, STALLED),
        AmqpScene(PRODUCERS, STALLED, FORGETFUL, MAX_UNACKED),
    ]
    for scene in scenes:
        with scratch() as directory:
            broker = Broker(directory, _SETTINGS)
            try:
                stage.display.stage = scene.section
                scene.prepare(broker)
                seconds = stage.plan.seconds
                with stage.display.waiting("a client alone"):
                    yield from _served(scene, "alone", scene.behave_well(broker, "alone", seconds))
                rows, capacity = _at_capacity(stage, scene, broker)
                yield from rows
                demand = Demand(TOO_MUCH * capacity / PRODUCERS)
                rows, acknowledged = _overloaded(stage, scene, broker, demand)
                yield from rows
                broker = Broker(directory, _SETTINGS)
                yield from _kept(stage, scene, broker, acknowledged)
            finally:
                broker.kill()


def _at_capacity(stage: Stage, scene: Scene, broker: Broker) -> tuple[list[Row], float]:
    """Also the bytes per second that were acknowledged."""
    is_over = Tally()
    producers = scene.fill(broker, Demand(window=WINDOWS[scene.unit]), is_over)
    try:
        with stage.display.waiting("at capacity"):
            polite = scene.behave_well(broker, "busy", stage.plan.seconds)
        is_over.value = 1
        loads = [each.result() for each in producers]
    finally:
        for each in producers:
            each.end()
    capacity = _acknowledged(scene, loads)
    rows = [_rate(scene, "capacity", capacity), *_served(scene, "at capacity", polite)]
    return rows, capacity


def _overloaded(stage: Stage, scene: Scene, broker: Broker, demand: Demand) -> tuple[list[Row], list[int]]:
    """Also how much of each producer was acknowledged. The broker is killed in the end."""
    before = broker.rss_mib()
    broker.forget_peak()
    is_over = Tally()
    offenders = scene.offend(broker, is_over)
    producers = scene.flood(broker, demand, is_over)
    try:
        with stage.display.waiting("overload"):
            polite = scene.behave_well(broker, "overload", stage.plan.seconds)
        growth = broker.peak_mib() - before
        broker.kill()
        loads = [each.result() for each in producers]
        is_over.value = 1
        sent_away = sum(each.result() for each in offenders)
    finally:
        for producer in producers:
            producer.end()
        for offender in offenders:
            offender.end()
    offered = sum(load.offered / load.seconds for load in loads)
    most = (BUDGET + scene.leases(BUDGET) * LEASE + BESIDE) // MIB
    rows = [
        _rate(scene, "offered", offered),
        _rate(scene, "acknowledged of that", _acknowledged(scene, loads)),
        Row(
            section=scene.section,
            name="memory that is added, at most",
            unit="MiB",
            rounds=(growth,),
            most=most,
        ),
        Row(section=scene.section, name="sent away", unit="connections", rounds=(float(sent_away),)),
        *_served(scene, "overload", polite, MOST_LATENCY),
    ]
    return rows, [load.answered for load in loads]


def _kept(stage: Stage, scene: Scene, broker: Broker, acknowledged: list[int]) -> Iterator[Row]:
    section, unit = scene.section, scene.unit
    yield Row(section=section, name="acknowledged", unit=unit, rounds=(float(sum(acknowledged)),))
    with stage.display.waiting("reading back"):
        lost = sum(scene.lost(broker, number, count) for number, count in enumerate(acknowledged))
    name = "acknowledged and lost, after kill -9"
    yield Row(section=section, name=name, unit=unit, rounds=(float(lost),), exactly=0)


def _acknowledged(scene: Scene, loads: list[Flooded]) -> float:
    """Bytes per second."""
    return sum(load.answered * scene.piece_bytes / load.seconds for load in loads)


def _rate(scene: Scene, name: str, bytes_per_second: float) -> Row:
    return Row(section=scene.section, name=name, unit="MB/s", rounds=(bytes_per_second / 1e6,))


def _served(
    scene: Scene, when: str, polite: Mapping[str, Latencies], most: float | None = None
) -> Iterator[Row]:
    for what, found in polite.items():
        name = f"the client, {when}: {what}"
        yield Row(section=scene.section, name=f"{name}, p50", unit="ms", rounds=(found.p50,))
        yield Row(section=scene.section, name=f"{name}, p99", unit="ms", rounds=(found.p99,), most=most)
