"""Writing: partitions, batches, codecs, order, refusals."""

from collections import defaultdict

import pytest
from kafka.partitioner.default import murmur2

from posthouse.client import Client, Start
from posthouse.client.errors import BadArgument, MessageTooLarge, PartitionNotFound, TopicNotFound
from posthouse.records.batch import iter_headers
from posthouse.records.compression import Codec


def values_by_partition(client: Client, topic: str) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for message in client.messages(topic):
        found[message.partition].append(message.value)
    return dict(found)


def test_everything_in_a_record_arrives(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    with client.producer(topic) as producer:
        producer.send(b"v", b"k", [("a", b"1"), ("b", None)], timestamp=1_700_000_000_123)
        producer.send(None, b"k")
        producer.send(b"", None)
    assert producer.acknowledged == 3
    first, tombstone, empty = client.messages(topic)
    assert first == (0, 0, 1_700_000_000_123, b"k", b"v", (("a", b"1"), ("b", None)))
    assert (tombstone.key, tombstone.value) == (b"k", None)
    assert (empty.offset, empty.key, empty.value, empty.headers) == (2, None, b"", ())


def test_a_key_goes_where_kafka_puts_it(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=7)
    keys = [f"key-{number}".encode() for number in range(50)]
    with client.producer(topic) as producer:
        for key in keys:
            producer.send(key, key)
    found = values_by_partition(client, topic)
    for key in keys:
        assert key in found[(murmur2(key) & 0x7FFFFFFF) % 7]


def test_records_without_keys_fill_a_batch_and_then_the_next_partition(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    with client.producer(topic, batch_bytes=1000) as producer:
        for number in range(60):
            producer.send(b"%03d" % number + b"x" * 97)
    found = values_by_partition(client, topic)
    assert sorted(found) == [0, 1, 2]
    assert all(len(values) >= 10 for values in found.values())
    batches = [
        header.count
        for fetched in client.reading(topic, Start.beginning())
        for _, header in iter_headers(fetched.data)
    ]
    assert sum(batches) == 60 and max(batches) > 5


def test_order_within_a_partition_is_kept_over_many_requests(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    with client.producer(topic, batch_bytes=200) as producer:
        for number in range(2000):
            value = b"%05d" % number
            sent[number % 2].append(value)
            producer.send(value, partition=number % 2)
    assert producer.acknowledged == 2000
    assert values_by_partition(client, topic) == sent


@pytest.mark.parametrize("codec", list(Codec), ids=[codec.name for codec in Codec])
def test_every_codec(client: Client, topic: str, codec: Codec) -> None:
    with client.producer(topic, codec=codec) as producer:
        for number in range(100):
            producer.send(b"%d" % number, partition=0)
    assert values_by_partition(client, topic)[0] == [b"%d" % number for number in range(100)]
    [fetched] = client.reading(topic, Start.beginning(), partitions=[0])
    assert [header.codec for _, header in iter_headers(fetched.data)] == [codec]


def test_what_the_broker_refuses_is_raised(client: Client, topic: str) -> None:
    client.create_topic(topic, settings={"max.message.bytes": "1000"})
    producer = client.producer(topic)
    producer.send(b"x" * 2000)
    with pytest.raises(MessageTooLarge, match=r"send smaller messages, or raise its limit"):
        producer.flush()
    producer.close()
    assert client.topic(topic).name == topic, "the client itself can still be used"


def test_the_client_is_usable_while_a_producer_has_requests_under_way(client: Client, topic: str) -> None:
    with client.producer(topic, batch_bytes=100) as producer:
        for number in range(20):
            producer.send(b"x" * 100)
            if number % 5 == 0:
                assert client.topic(topic).name == topic
    assert producer.acknowledged == 20


def test_a_topic_that_is_deleted_meanwhile(client: Client, topic: str) -> None:
    producer = client.producer(topic)
    client.delete_topic(topic)
    producer.send(b"x")
    with pytest.raises(TopicNotFound):
        producer.flush()
    producer.close()


def test_mistakes_of_the_caller(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        with pytest.raises(PartitionNotFound, match="choose one from 0 to 1"):
            producer.send(b"x", partition=2)
        with pytest.raises(BadArgument, match="timestamp -5"):
            producer.send(b"x", timestamp=-5)
        with pytest.raises(BadArgument, match="acks 0 would hide failures"):
            client.producer(topic, acks=0)
    assert producer.acknowledged == 0


def test_an_error_in_the_block_sends_nothing_more(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(RuntimeError), client.producer(topic) as producer:
        producer.send(b"x")
        raise RuntimeError
    assert values_by_partition(client, topic) == {}
