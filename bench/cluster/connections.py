"""What an idle connection of a client costs the brokers of a cluster, by protocol and by where it is."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench import wire
from bench.cluster.clusters import NAMES, cluster_of
from bench.cluster.contenders import INLINE, place_of
from bench.cluster.moves import Members, move_to
from bench.cluster.plan import Stage
from bench.queues.workers import Tally, Worker
from bench.scale import idle
from bench.scale.brokers import Broker
from bench.scale.figures import Row
from posthouse.model.scopes import DEFAULT_NAMESPACE, scope_of_namespace

NOTE = """Two brokers. Clients connect to one of them, make one request (for AMQP a login and a channel), and
are idle; those *waiting for records* are consumers at the end of a topic, each with a long poll. AMQP
connections to a broker that does not serve their virtual host are passed on to the one that does, so they
cost both something."""
_SECTION = "Cost of a client's connection"
_SPARE = 1000
_BROKERS = 2
_ANYWHERE = (idle.KAFKA, idle.WAITING)
"""What every broker serves alike."""
_SERVING, _OTHER = "at the broker of their virtual host", "at another broker"


def connections(stage: Stage) -> Iterator[Row]:
    idle.allow_descriptors(2 * stage.plan.idle_connections + _SPARE)
    for protocol in _ANYWHERE:
        stage.display.say(f"  {protocol}")
        with _cluster(stage) as members:
            yield from _measured(stage, protocol, "", {"": members.brokers[NAMES[0]]})
    for where in (_SERVING, _OTHER):
        stage.display.say(f"  {idle.AMQP}, {where}")
        with _cluster(stage) as members:
            serving, other = list(members.brokers)
            move_to(members, scope_of_namespace(DEFAULT_NAMESPACE), serving)
            costs = {"": members.brokers[serving]}
            if where == _OTHER:
                costs = {
                    "": members.brokers[other],
                    " of the broker of the virtual host": members.brokers[serving],
                }
            yield from _measured(stage, idle.AMQP, f", {where}", costs)


@contextmanager
def _cluster(stage: Stage) -> Iterator[Members]:
    with (
        place_of(INLINE, stage.servers) as place,
        cluster_of(place, _BROKERS, {"admin": "127.0.0.1:0"}) as brokers,
    ):
        yield Members(dict(zip(NAMES, brokers, strict=False)))


def _measured(stage: Stage, protocol: str, where: str, costing: Mapping[str, Broker]) -> Iterator[Row]:
    """`costing` are the brokers whose costs count, by what their rows add; the first one has the clients."""
    count, brokers = stage.plan.idle_connections, list(costing.values())
    topic = wire.topic_id(brokers[0].kafka, idle.TOPIC)
    port = brokers[0].amqp if protocol == idle.AMQP else brokers[0].kafka
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
        busy = [(each.cpu_seconds() - spent) / pause for each, spent in zip(brokers, cpu, strict=True)]
        used = [each.rss_mib() - before for each, before in zip(brokers, alone, strict=True)]
    finally:
        is_over.value = 1
        holder.end()
    for of, memory, cores in zip(costing, used, busy, strict=True):
        name, of_1000 = f"{protocol}{where}", cores * 100 * 1000 / count
        yield Row(section=_SECTION, name=f"{name}: memory{of}", unit="KiB", rounds=(memory * 1024 / count,))
        yield Row(section=_SECTION, name=f"{name}: CPU of 1,000{of}", unit="% of a core", rounds=(of_1000,))
