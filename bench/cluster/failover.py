"""How long a client waits when the broker that holds the lease is killed."""

import time
from collections.abc import Iterator

from bench import wire
from bench.cluster.contenders import INLINE_STANDBY, OBJECT_STANDBY, Contender, Place, place_of
from bench.cluster.loads import new_target
from bench.cluster.plan import Stage
from bench.scale.asking import NotDone, connected
from bench.scale.brokers import Broker
from bench.scale.figures import Row
from posthouse.client.errors import ClientError
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NOTE = """Two brokers. A client knows only the standby, which passes its requests on. The holder is killed
with kill -9; the time runs until the other broker acknowledges a produce, by a client that tries again at
once. Most of it is the rest of the dead broker's lease: 8 s from a renewal, every 2 s."""
MEASURED = (INLINE_STANDBY, OBJECT_STANDBY)
MOST_SECONDS = 10.0
_LIMIT = 60.0
_RETRY_SECONDS = 0.02


def failover(stage: Stage) -> Iterator[Row]:
    for contender in MEASURED:
        rounds = []
        for number in range(stage.plan.rounds):
            with place_of(contender, stage.servers) as place:
                rounds.append(_round(place, contender))
            stage.display.say(f"  round {number + 1}, {contender.name}: {rounds[-1]:.1f} s")
        yield Row(
            section="Failover: kill -9 of the holder until the first acknowledged produce",
            name=contender.name,
            unit="s",
            rounds=tuple(rounds),
            most=MOST_SECONDS,
        )


def _round(place: Place, contender: Contender) -> float:
    holder = place.broker("a")
    try:
        standby = place.broker("b")
        try:
            topic = new_target(holder, "t", contender.latency).topic
            produce_until_acknowledged(standby, topic)
            return seconds_until_served(holder, standby, topic)
        finally:
            standby.kill()
    finally:
        holder.kill()


def seconds_until_served(holder: Broker, standby: Broker, topic: bytes) -> float:
    begun = time.perf_counter()
    holder.kill()
    produce_until_acknowledged(standby, topic)
    return time.perf_counter() - begun


def produce_until_acknowledged(broker: Broker, topic: bytes) -> None:
    data = PartitionProduceData(index=0, records=memoryview(wire.batch(100, 1)))
    topics = [TopicProduceData(topic_id=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    deadline = time.monotonic() + _LIMIT
    while True:
        try:
            with connected(broker.kafka) as connection:
                answer = connection.ask(request, ProduceResponse)
            code = answer.responses[0].partition_responses[0].error_code
            if code == 0:
                return
            problem = f"error {code}"
        except (ClientError, OSError) as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise NotDone(f"no produce was acknowledged within {_LIMIT:g} s: {problem}")
        time.sleep(_RETRY_SECONDS)
