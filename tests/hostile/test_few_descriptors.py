"""A broker that may open few files: connections that do nothing shut nobody out."""

import struct
from collections.abc import Iterator

import pytest

from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from tests.hostile.peers import GoodClient, KafkaPeer, Peer
from tests.hostile.victim import UNPUNISHED, Victim, victim

pytestmark = pytest.mark.timeout(120)

LIMIT = 200
MANY = 300


@pytest.fixture
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """`max_connections` is its usual 10,000."""
    with victim(tmp_path_factory.mktemp("poor") / "data", **UNPUNISHED, descriptors=LIMIT) as process:
        yield process


def is_open(peer: Peer) -> bool:
    """Whether the broker has not closed the connection."""
    peer.socket.setblocking(False)
    try:
        return peer.socket.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_connections_that_say_nothing(poor: Victim) -> None:
    silent = [Peer(poor.kafka_address) for _ in range(MANY)]
    with GoodClient(poor.kafka_address) as client:
        assert client.produce_one() < 5
    assert sum(map(is_open, silent)) < LIMIT - 64, "the broker has more descriptors than it may have"
    for each in silent:
        each.socket.close()


def test_connections_that_said_something_once(poor: Victim) -> None:
    """They may stay, but storage has descriptors of its own, and so has everybody who came before."""
    with GoodClient(poor.kafka_address) as client:
        idle: list[KafkaPeer] = []
        for _ in range(MANY):
            peer = KafkaPeer(poor.kafka_address)
            try:
                peer.ask(MetadataRequest(topics=[]), MetadataResponse)
            except (OSError, struct.error):  # it was closed instead
                peer.socket.close()
                break
            idle.append(peer)
        assert 50 < len(idle) < LIMIT - 64
        for number in range(40):
            topic = client.create_topic(f"topic-{number}")
            assert client.produce(topic, client.batch) == 0
        for peer in idle:
            peer.socket.close()
    assert poor.is_alive
