"""Batches that nobody can read, or that become too much, on their way through queues and share groups."""

import uuid
from collections.abc import Iterator

import pika
import pytest
from confluent_kafka import Producer

from posthouse.records.compression import Codec
from tests.hostile import bombs
from tests.hostile.attacks import CODECS, MESSAGE_TOO_LARGE, Scene
from tests.hostile.peers import KafkaPeer
from tests.hostile.victim import ALLOWED_GROWTH, MIB, UNPUNISHED, victim

pytestmark = pytest.mark.timeout(120)

INVALID_RECORD = 87


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with victim(tmp_path_factory.mktemp("hostile-queues"), **UNPUNISHED) as process:
        yield Scene(process)


class Feed:
    """A queue, and the topic whose records go to it."""

    def __init__(self, scene: Scene) -> None:
        self.name = f"fed-{uuid.uuid4().hex}"
        host, port = scene.victim.amqp_address
        self._bootstrap = "{}:{}".format(*scene.victim.kafka_address)
        self._connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
        self._channel = self._connection.channel()
        self._channel.queue_declare(self.name, durable=True)
        self.peer = KafkaPeer(scene.victim.kafka_address)
        self.topic_id = self.peer.create_topic(self.name)

    def produce_good(self, value: bytes) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "compression.type": "zstd", "log_level": 0}
        )
        producer.produce(self.name, value)
        assert producer.flush(20) == 0

    def consume_one(self) -> bytes:
        for _, _, body in self._channel.consume(self.name, auto_ack=True, inactivity_timeout=30):
            assert body is not None, "no message came"
            assert isinstance(body, bytes)
            return body
        raise AssertionError

    def close(self) -> None:
        self._connection.close()
        self.peer.socket.close()


@pytest.fixture
def feed(scene: Scene) -> Iterator[Feed]:
    feed = Feed(scene)
    yield feed
    feed.close()


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_bomb_is_no_message_and_the_next_one_comes(scene: Scene, feed: Feed, codec: Codec) -> None:
    before = scene.victim.begin()
    for _ in range(5):
        assert feed.peer.produce(feed.topic_id, bombs.bomb(codec)) == 0
    feed.produce_good(b"good")
    assert feed.consume_one() == b"good"
    growth = scene.victim.peak() - before
    assert growth < ALLOWED_GROWTH, f"{growth // MIB} MiB more"


def test_small_batches_that_become_large_are_loaded_a_few_at_a_time(scene: Scene, feed: Feed) -> None:
    """Each is a message, of 12 MiB; together they are 180."""
    before = scene.victim.begin()
    for _ in range(15):
        assert feed.peer.produce(feed.topic_id, bombs.inflatable(12 * MIB)) == 0
    feed.produce_good(b"good")
    for _ in range(15):
        assert len(feed.consume_one()) == 12 * MIB
    assert feed.consume_one() == b"good"
    growth = scene.victim.peak() - before
    assert growth < 2 * ALLOWED_GROWTH, f"{growth // MIB} MiB more"


def test_records_that_lead_back_to_themselves(feed: Feed) -> None:
    assert feed.peer.produce(feed.topic_id, bombs.tangled()) == 0
    feed.produce_good(b"good")
    assert feed.consume_one() == b"good"


def test_more_records_than_queues_count(feed: Feed) -> None:
    assert feed.peer.produce(feed.topic_id, bombs.swarm(Codec.ZSTD)) == MESSAGE_TOO_LARGE
    assert feed.peer.produce(feed.topic_id, bombs.lie(2**31 - 1, Codec.GZIP)) == INVALID_RECORD
    feed.produce_good(b"good")
    assert feed.consume_one() == b"good"
