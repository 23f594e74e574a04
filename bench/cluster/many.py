"""Very many groups, partitions and connections over three brokers."""

import time
from collections.abc import Iterator

from bench import wire
from bench.cluster import group_members
from bench.cluster.clusters import NAMES, cluster_of, wait_for_members
from bench.cluster.contenders import INLINE, Place, place_of
from bench.cluster.partitions import make_partitions, write_some
from bench.cluster.plan import Stage
from bench.queues.workers import Tally, Worker
from bench.scale import idle
from bench.scale.asking import NotDone, connected
from bench.scale.brokers import START_LIMIT, Broker
from bench.scale.figures import Row
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse

MOST_MEMORY = 300.0
MOST_START = 20.0
NOTE = f"""Three brokers. Each group has a member, which is connected to the coordinator of its group, has
joined, and has committed offsets of {group_members.PARTITIONS} partitions. The other connections are idle,
and spread as evenly as those of members allow. *Start* runs from the command to the ready line, after all
brokers were stopped, one after the other; then the groups are counted. Caches are nearly empty: a broker that
serves records needs `cache_bytes` (256 MiB unless it is set) besides."""
_SPARE = 2000
"""Descriptors of a broker beside those of clients."""
_LOOK_SECONDS = 0.5


def many(stage: Stage) -> Iterator[Row]:
    plan = stage.plan
    idle.allow_descriptors(max(plan.groups, plan.connections // len(NAMES)) + _SPARE)
    settings = {"max_connections": plan.connections}
    with place_of(INLINE, stage.servers) as place:
        with cluster_of(place, len(NAMES), settings) as brokers:
            yield from _filled(stage, brokers)
            for broker in brokers:
                broker.stop()
        yield from _started(stage, place, settings)


def _section(stage: Stage) -> str:
    plan = stage.plan
    return f"{plan.groups:,} groups, {plan.partitions:,} partitions, {plan.connections:,} connections"


def _filled(stage: Stage, brokers: list[Broker]) -> Iterator[Row]:
    plan, section = stage.plan, _section(stage)
    stage.display.say("  making partitions")
    names = make_partitions(brokers[0], plan.partitions)
    write_some(brokers[0], names)
    topic = wire.topic_id(brokers[0].kafka, names[0])
    ports = [each.kafka for each in brokers]
    coordinators = group_members.coordinators(ports[0], plan.groups)
    further = group_members.by_broker(coordinators, ports, plan.connections)
    is_over = Tally()
    stage.display.say("  groups join")
    begun = time.perf_counter()
    workers: list[tuple[Worker[None], Tally, int]] = []
    try:
        for port in sorted(set(coordinators.values())):
            groups = {name: each for name, each in coordinators.items() if each == port}
            joined = Tally()
            worker = Worker(group_members.hold, groups, topic, joined, is_over)
            workers.append((worker, joined, len(groups)))
        _wait(workers)
        took = time.perf_counter() - begun
        yield Row(section=section, name="groups made", unit="groups/s", rounds=(plan.groups / took,))
        stage.display.say("  clients connect")
        for port, count in further.items():
            if count:
                held = Tally()
                worker = Worker(idle.hold, idle.KAFKA, port, topic, count, held, is_over)
                workers.append((worker, held, count))
        _wait(workers)
        time.sleep(stage.plan.seconds)  # what joining has left is done
        cpu = [each.cpu_seconds() for each in brokers]
        time.sleep(stage.plan.seconds)
        for number, (name, broker) in enumerate(zip(NAMES, brokers, strict=True)):
            memory, busy = broker.rss_mib(), (broker.cpu_seconds() - cpu[number]) / stage.plan.seconds * 100
            connections = further[broker.kafka] + sum(each == broker.kafka for each in coordinators.values())
            yield Row(section=section, name=f"broker {name}: connections", unit="", rounds=(connections,))
            yield _memory(section, f"broker {name}: memory", memory)
            yield Row(section=section, name=f"broker {name}: CPU, idle", unit="% of a core", rounds=(busy,))
    finally:
        is_over.value = 1
        for worker, _, _ in workers:
            worker.end()


def _wait(workers: list[tuple[Worker[None], Tally, int]]) -> None:
    for worker, tally, count in workers:
        while tally.value < count:
            if worker.has_ended():
                worker.result()
            time.sleep(0.05)


def _memory(section: str, name: str, memory: float) -> Row:
    return Row(section=section, name=name, unit="MiB", rounds=(memory,), most=MOST_MEMORY)


def _started(stage: Stage, place: Place, settings: dict[str, int]) -> Iterator[Row]:
    section = _section(stage)
    with cluster_of(place, len(NAMES), settings) as brokers:
        for name, broker in zip(NAMES, brokers, strict=True):
            took = (broker.seconds_to_ready,)
            yield Row(section=section, name=f"broker {name}: start", unit="s", rounds=took, most=MOST_START)
        wait_for_members(brokers, len(NAMES))
        _wait_for_groups(stage, brokers)
        for name, broker in zip(NAMES, brokers, strict=True):
            yield _memory(section, f"broker {name}: memory after the start", broker.rss_mib())


def _wait_for_groups(stage: Stage, brokers: list[Broker]) -> None:
    """Until all of them are there: groups that come to another broker at this moment are not listed."""
    deadline = time.monotonic() + START_LIMIT
    while (found := len(_groups(brokers))) != stage.plan.groups:
        if time.monotonic() > deadline:
            raise NotDone(f"{found} of {stage.plan.groups} groups are there after a start")
        time.sleep(_LOOK_SECONDS)


def _groups(brokers: list[Broker]) -> set[str]:
    """Those that the brokers have, each its own or all of them."""
    found: set[str] = set()
    for broker in brokers:
        with connected(broker.kafka) as connection:
            answer = connection.ask(ListGroupsRequest(), ListGroupsResponse)
            found |= {each.group_id for each in answer.groups}
    return found
