"""Very many partitions: making them, starting with them, and taking over with them."""

import math
import time
from collections.abc import Iterator

from bench import wire
from bench.cluster.contenders import INLINE, Place, place_of
from bench.cluster.failover import produce_until_acknowledged, seconds_until_served
from bench.cluster.plan import Stage
from bench.scale.asking import connected, make_topics, metadata
from bench.scale.brokers import Broker
from bench.scale.figures import Row

PER_TOPIC = 1000
WITH_RECORDS = 10
NOTE = f"""Topics of {PER_TOPIC:,} partitions each; one partition in {WITH_RECORDS} has a record. *Start after
a stop* runs from the command to the ready line: the broker takes the lease and reads all logs. *Failover* is
as above, with all these partitions."""
MOST_START = 20.0
_WINDOW = 200


def partitions(stage: Stage) -> Iterator[Row]:
    count = stage.plan.partitions
    section = f"{count:,} partitions"
    with place_of(INLINE, stage.servers) as place:
        broker = place.broker("a")
        try:
            begun = time.perf_counter()
            names = _make(broker, count)
            took = time.perf_counter() - begun
            yield Row(section=section, name="made", unit="partitions/s", rounds=(count / took,))
            stage.display.say("  writing records")
            _write_some(broker, names)
            yield Row(section=section, name="memory", unit="MiB", rounds=(broker.rss_mib(),))
            broker.stop()
            broker = place.broker("a")
            yield Row(
                section=section,
                name="start after a stop",
                unit="s",
                rounds=(broker.seconds_to_ready,),
                most=MOST_START,
            )
            yield Row(section=section, name="memory after the start", unit="MiB", rounds=(broker.rss_mib(),))
            took = _failover(place, broker)
            yield Row(section=section, name="failover", unit="s", rounds=(took,), most=MOST_START)
        finally:
            broker.kill()


def _make(broker: Broker, count: int) -> list[str]:
    names = [f"topic-{number:05d}" for number in range(math.ceil(count / PER_TOPIC))]
    with connected(broker.kafka) as connection:
        for number, name in enumerate(names):
            make_topics(connection, [name], partitions=min(PER_TOPIC, count - number * PER_TOPIC))
    return names


def _write_some(broker: Broker, names: list[str]) -> None:
    batch = wire.batch(100, 1)
    with connected(broker.kafka) as connection:
        found = metadata(connection, names).topics
    frames = [
        wire.produce_frame(topic.topic_id, partition, batch)
        for topic in found
        for partition in range(0, len(topic.partitions), WITH_RECORDS)
    ]
    wire.push(broker.kafka, frames, sum(map(len, frames)), _WINDOW)


def _failover(place: Place, holder: Broker) -> float:
    standby = place.broker("b")
    try:
        topic = wire.topic_id(holder.kafka, "topic-00000")
        produce_until_acknowledged(standby, topic)
        return seconds_until_served(holder, standby, topic)
    finally:
        standby.kill()
