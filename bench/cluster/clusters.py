"""Several brokers on one storage."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.cluster.contenders import Place
from bench.scale.asking import NotDone, connected, metadata
from bench.scale.brokers import START_LIMIT, Broker
from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

NAMES = "abc"
_LATEST = -1
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A topic, and the broker at which clients find each partition."""

    topic: bytes
    name: str
    led: Mapping[int, Sequence[int]]
    """Partitions by the port of their leader."""

    @property
    def partitions(self) -> int:
        return sum(map(len, self.led.values()))


@contextmanager
def cluster_of(
    place: Place, count: int, settings: Mapping[str, object] | None = None
) -> Iterator[list[Broker]]:
    """They know each other. The first one is the coordinator."""
    brokers: list[Broker] = []
    try:
        brokers.extend(place.broker(name, settings) for name in NAMES[:count])
        wait_for_members(brokers, count)
        yield brokers
    finally:
        for each in brokers:
            each.kill()


def wait_for_members(brokers: Sequence[Broker], count: int) -> None:
    """Until each of them names so many brokers to its clients."""
    deadline = time.monotonic() + START_LIMIT
    for each in brokers:
        while len(ports_of(each)) != count:
            if time.monotonic() > deadline:
                raise NotDone(f"a broker does not know {count} brokers")
            time.sleep(_LOOK_SECONDS)


def ports_of(broker: Broker) -> dict[int, int]:
    """By node id."""
    with connected(broker.kafka) as connection:
        return {each.node_id: each.port for each in metadata(connection, []).brokers}


def spread_of(broker: Broker, name: str) -> Spread:
    with connected(broker.kafka) as connection:
        answer = metadata(connection, [name])
    ports = {each.node_id: each.port for each in answer.brokers}
    [topic] = answer.topics
    led: dict[int, list[int]] = {port: [] for port in ports.values()}
    for each in topic.partitions:
        led[ports[each.leader_id]].append(each.partition_index)
    return Spread(topic=topic.topic_id, name=name, led={port: each for port, each in led.items() if each})


def records_in(broker: Broker, spread: Spread) -> int:
    """As the database has it: a broker asks it for the end of a log."""
    wanted = [
        ListOffsetsPartition(partition_index=each, timestamp=_LATEST) for each in range(spread.partitions)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=spread.name, partitions=wanted)]
    )
    with connected(broker.kafka) as connection:
        found = connection.ask(request, ListOffsetsResponse).topics[0].partitions
    if failed := [each.error_code for each in found if each.error_code]:
        raise NotDone(f"the end of a log was not told: error {failed[0]}")
    return sum(each.offset for each in found)
