"""Very many partitions: making them, starting with them, and taking over with them."""

import math
import time
from collections.abc import Iterator

from bench import wire
from bench.cluster.clusters import wait_for_members
from bench.cluster.contenders import INLINE, Place, place_of
from bench.cluster.failover import seconds_until_served
from bench.cluster.plan import Stage
from bench.scale.asking import connected, make_topics, metadata
from bench.scale.brokers import Broker
from bench.scale.figures import Row

PER_TOPIC = 1000
WITH_RECORDS = 10
NOTE = f"""Topics of {PER_TOPIC:,} partitions each; one partition in {WITH_RECORDS} has a record. *Start after
a stop* runs from the command to the ready line: the broker takes the lease and reads all logs. *Failover* is
as above, with all these partitions. Caches are nearly empty: a broker that serves records needs
`cache_bytes` (256 MiB unless it is set) besides."""
MOST_START = 20.0
MOST_MEMORY = 300.0
_WINDOW = 200


def partitions(stage: Stage) -> Iterator[Row]:
    count = stage.plan.partitions
    section = f"{count:,} partitions"
    with place_of(INLINE, stage.servers) as place:
        broker = place.broker("a")
        try:
            begun = time.perf_counter()
            names = make_partitions(broker, count)
            took = time.perf_counter() - begun
            yield Row(section=section, name="made", unit="partitions/s", rounds=(count / took,))
            stage.display.say("  writing records")
            write_some(broker, names)
            yield _memory(section, "memory", broker)
            broker.stop()
            broker = place.broker("a")
            yield Row(
                section=section,
                name="start after a stop",
                unit="s",
                rounds=(broker.seconds_to_ready,),
                most=MOST_START,
            )
            yield _memory(section, "memory after the start", broker)
            for name, seconds in _failover(place, broker, names[0]).items():
                name = f"failover, until {name}"
                yield Row(section=section, name=name, unit="s", rounds=(seconds,), most=MOST_START)
        finally:
            broker.kill()


def _memory(section: str, name: str, broker: Broker) -> Row:
    return Row(section=section, name=name, unit="MiB", rounds=(broker.rss_mib(),), most=MOST_MEMORY)


def make_partitions(broker: Broker, count: int) -> list[str]:
    """The names of their topics."""
    names = [f"topic-{number:05d}" for number in range(math.ceil(count / PER_TOPIC))]
    with connected(broker.kafka) as connection:
        for number, name in enumerate(names):
            make_topics(connection, [name], partitions=min(PER_TOPIC, count - number * PER_TOPIC))
    return names


def write_some(broker: Broker, names: list[str]) -> None:
    """A record into one partition in `WITH_RECORDS`."""
    batch = wire.batch(100, 1)
    with connected(broker.kafka) as connection:
        found = metadata(connection, names).topics
    frames = [
        wire.produce_frame(topic.topic_id, partition, batch)
        for topic in found
        for partition in range(0, len(topic.partitions), WITH_RECORDS)
    ]
    wire.push(broker.kafka, frames, sum(map(len, frames)), _WINDOW)


def _failover(place: Place, coordinator: Broker, topic: str) -> dict[str, float]:
    member = place.broker("b")
    try:
        wait_for_members([member], 2)
        return seconds_until_served(coordinator, member, wire.topic_id(coordinator.kafka, topic))
    finally:
        member.kill()
