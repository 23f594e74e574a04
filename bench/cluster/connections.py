"""What an idle connection of a client costs the brokers of a cluster, by protocol and by where it is."""

import time
from collections.abc import Iterator

from bench import wire
from bench.cluster.clusters import cluster_of
from bench.cluster.contenders import INLINE, place_of
from bench.cluster.plan import Stage
from bench.queues.workers import Tally, Worker
from bench.scale import idle
from bench.scale.brokers import Broker
from bench.scale.figures import Row

NOTE = """Two brokers. Clients connect to one of them, make one request (for AMQP a login and a channel), and
are idle; those *waiting for records* are consumers at the end of a topic, each with a long poll. AMQP
connections to a member are passed on, so they cost the coordinator something, too."""
_SECTION = "Cost of a client's connection"
_SPARE = 1000
_PROTOCOLS = (idle.KAFKA, idle.WAITING, idle.AMQP)
_COORDINATOR, _MEMBER = "the coordinator", "a member"


def connections(stage: Stage) -> Iterator[Row]:
    count = stage.plan.idle_connections
    idle.allow_descriptors(2 * count + _SPARE)
    for protocol in _PROTOCOLS:
        for number, where in enumerate((_COORDINATOR, _MEMBER)):
            stage.display.say(f"  {protocol}, at {where}")
            with place_of(INLINE, stage.servers) as place, cluster_of(place, 2) as brokers:
                yield from _measured(stage, protocol, where, brokers[number], brokers)


def _measured(
    stage: Stage, protocol: str, where: str, broker: Broker, brokers: list[Broker]
) -> Iterator[Row]:
    count = stage.plan.idle_connections
    topic = wire.topic_id(brokers[0].kafka, idle.TOPIC)
    port = broker.amqp if protocol == idle.AMQP else broker.kafka
    alone = [each.rss_mib() for each in brokers]
    connected, is_over = Tally(), Tally()
    holder = Worker(idle.hold, protocol, port, topic, count, connected, is_over)
    try:
        while connected.value < count:
            if holder.has_ended():
                holder.result()
            time.sleep(0.05)
        cpu, pause = [each.cpu_seconds() for each in brokers], stage.plan.seconds
        time.sleep(pause)
        costs = [
            ((each.rss_mib() - before) * 1024 / count, (each.cpu_seconds() - spent) / pause * 100)
            for each, before, spent in zip(brokers, alone, cpu, strict=True)
        ]
    finally:
        is_over.value = 1
        holder.end()
    for each, (memory, busy) in zip(brokers, costs, strict=True):
        if each is broker or (protocol == idle.AMQP and where == _MEMBER):
            at = f"{protocol}, at {where}:"
            of = "" if each is broker else " of the coordinator"
            yield Row(section=_SECTION, name=f"{at} memory{of}", unit="KiB", rounds=(memory,))
            used = (busy * 1000 / count,)
            yield Row(section=_SECTION, name=f"{at} CPU of 1,000{of}", unit="% of a core", rounds=used)
