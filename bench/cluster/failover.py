"""How long clients wait when the broker that coordinates is killed."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from bench import wire
from bench.cluster.clusters import cluster_of
from bench.cluster.contenders import INLINE_STANDBY, OBJECT_STANDBY, Contender, place_of
from bench.cluster.coordinators import NotNow, OffsetCommitter, coordinator_ports, until_done
from bench.cluster.loads import new_target
from bench.cluster.plan import Stage
from bench.scale.asking import connected
from bench.scale.brokers import Broker
from bench.scale.figures import Row
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NOTE = """Two brokers. Clients know only the member. The coordinator is killed with kill -9; the time runs
until the other broker acknowledges a request, of a client that tries again at once. A produce needs no
coordinator. An offset commit does: it waits until the dead broker's lease is over, 8 s from a renewal, every
2 s, and until the other broker has taken over."""
MEASURED = (INLINE_STANDBY, OBJECT_STANDBY)
MOST_SECONDS = 10.0
_PRODUCE, _COMMIT = "a produce", "an offset commit"
_GROUPS = 100


def failover(stage: Stage) -> Iterator[Row]:
    for contender in MEASURED:
        rounds: dict[str, list[float]] = {_PRODUCE: [], _COMMIT: []}
        for number in range(stage.plan.rounds):
            for name, took in _round(stage, contender).items():
                rounds[name].append(took)
                stage.display.say(f"  round {number + 1}, {contender.name}, {name}: {took:.2f} s")
        for name, each in rounds.items():
            yield Row(
                section="Failover: kill -9 of the coordinator until the first acknowledgement",
                name=f"{name}, {contender.name}",
                unit="s",
                rounds=tuple(each),
                most=MOST_SECONDS,
            )


def _round(stage: Stage, contender: Contender) -> dict[str, float]:
    with place_of(contender, stage.servers) as place, cluster_of(place, 2) as (coordinator, member):
        topic = new_target(coordinator, "t", contender.latency).topic
        return seconds_until_served(coordinator, member, topic)


def seconds_until_served(coordinator: Broker, member: Broker, topic: bytes) -> dict[str, float]:
    """Kills the coordinator."""
    group = _group_of(coordinator, member)
    with closing(OffsetCommitter([member.kafka], group, topic)) as committer:
        work: dict[str, Callable[[], None]] = {
            _PRODUCE: partial(_produce, member, topic),
            _COMMIT: partial(committer.commit, 1),
        }
        for each in work.values():
            until_done(each)
        begun = time.perf_counter()
        coordinator.kill()
        took = {}
        for name, each in work.items():
            until_done(each)
            took[name] = time.perf_counter() - begun
        return took


def _group_of(coordinator: Broker, member: Broker) -> str:
    """One that the broker that will be killed coordinates."""
    found: dict[str, int] = {}
    names = [f"failover-{number}" for number in range(_GROUPS)]
    until_done(lambda: found.update(coordinator_ports(member.kafka, names)))
    return next(name for name in names if found[name] == coordinator.kafka)


def _produce(broker: Broker, topic: bytes) -> None:
    data = PartitionProduceData(index=0, records=memoryview(wire.batch(100, 1)))
    topics = [TopicProduceData(topic_id=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    with connected(broker.kafka) as connection:
        answer = connection.ask(request, ProduceResponse)
    if code := answer.responses[0].partition_responses[0].error_code:
        raise NotNow(f"a batch was not acknowledged: error {code}")
