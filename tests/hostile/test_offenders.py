"""Whoever is refused again and again is slowed down, and nobody else is."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from posthouse.protocols.offences import FREE_SECONDS
from posthouse.records.compression import Codec
from tests.hostile import bombs
from tests.hostile.attacks import MESSAGE_TOO_LARGE
from tests.hostile.peers import GoodClient, KafkaPeer, Peer
from tests.hostile.victim import Victim, victim
from tests.wire.kafka import RequestEncoder

pytestmark = pytest.mark.timeout(120)

SECONDS = 4
OFFENCES = int(FREE_SECONDS) + SECONDS
"""As many take longer than the seconds below: the first ones are free, each of the others costs one."""
AT_LEAST = SECONDS - 1.1
"""The first one that is not free waits for nothing before it, and timers may be a little early."""
NEIGHBOUR = "127.0.0.2"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Victim]:
    with victim(tmp_path) as process:
        yield process


def seconds_for(count: int, offend: Callable[[], None]) -> float:
    """Counted, and not as many as there are in some time: a busy machine may do few of them."""
    begun = time.monotonic()
    for _ in range(count):
        offend()
    return time.monotonic() - begun


def offend(target: Victim, protocol: str) -> None:
    with Peer(target.kafka_address if protocol == "kafka" else target.amqp_address) as peer:
        peer.send(struct.pack(">i", -1) + bytes(8))
        assert peer.is_closed()


@pytest.mark.parametrize("protocol", ["kafka", "amqp"])
def test_connections_of_an_offender_wait(target: Victim, protocol: str) -> None:
    with GoodClient(target.kafka_address) as good:
        assert seconds_for(OFFENCES, lambda: offend(target, protocol)) > AT_LEAST
        good.produce_one()  # it was there before


def test_a_connection_that_offends_is_not_heard_for_a_while(target: Victim) -> None:
    with KafkaPeer(target.kafka_address) as peer:
        topic_id = peer.create_topic("compacted", cleanup_policy="compact")
        bomb = bombs.bomb(Codec.ZSTD)

        def offend() -> None:
            assert peer.produce(topic_id, bomb) == MESSAGE_TOO_LARGE

        assert seconds_for(OFFENCES, offend) > AT_LEAST


def test_another_address_does_not_wait(tmp_path: Path) -> None:
    """There are so many offences that the address owes all it can, however long they take."""
    with victim(tmp_path, offender_wait_seconds=10) as target:
        peers = [Peer(target.kafka_address) for _ in range(4 * int(FREE_SECONDS))]
        begun = time.monotonic()
        for peer in peers:
            peer.send(struct.pack(">i", -1))
        for peer in peers:
            assert peer.is_closed()
            peer.socket.close()
        greeted = time.monotonic()
        with KafkaPeer(target.kafka_address, NEIGHBOUR) as neighbour:
            neighbour.create_topic("neighbours")
        assert time.monotonic() - greeted < 8
        with KafkaPeer(target.kafka_address) as same:
            same.create_topic("of-the-same-address")
        assert time.monotonic() - begun > 9


def test_who_wants_no_answer_and_is_cut_off_has_not_offended(tmp_path: Path) -> None:
    """The topic may be gone, or the disk full: that is no fault of theirs."""
    data = TopicProduceData(topic_id=bytes(range(16)), partition_data=[PartitionProduceData(records=b"x")])
    chunks, _ = RequestEncoder("peer").encode(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]))
    frame = b"".join(chunks)
    with victim(tmp_path, offender_wait_seconds=30) as target:
        for _ in range(4 * int(FREE_SECONDS)):
            with Peer(target.kafka_address) as peer:
                peer.send(frame)
                assert peer.is_closed()
        begun = time.monotonic()
        with KafkaPeer(target.kafka_address) as peer:
            peer.create_topic("topic")
        assert time.monotonic() - begun < 15


def test_a_client_of_the_same_address_gets_in(target: Victim) -> None:
    """It waits a little, like everybody there, and not longer."""
    for _ in range(OFFENCES):
        with Peer(target.amqp_address) as peer:
            peer.send(b"GET / HTTP/1.1\r\n\r\n")
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*target.kafka_address), "log_level": 0})
    assert admin.list_topics(timeout=20).brokers
