"""Reading a range: exactly its records, however small the fetches are, and where it left off if it broke."""

import confluent_kafka
import pytest

from posthouse.client import Client
from posthouse.client.errors import BrokerUnreachable, OffsetGone
from posthouse.client.ranges import RangeReading
from posthouse.client.spans import Span
from posthouse.testing import ThreadBroker


def fill(client: Client, topic: str, count: int) -> None:
    """Batches of four records."""
    client.create_topic(topic, partitions=1)
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%d" % number, partition=0)
            if number % 4 == 3:
                producer.flush()


def values(reading: RangeReading) -> list[int]:
    return [int(message.value or b"") for fetched in reading for message in fetched.messages()]


@pytest.mark.parametrize("fetch_bytes", [1, 200, 4096])
@pytest.mark.parametrize(("first", "end"), [(0, 20), (0, 1), (3, 5), (6, 6), (19, 20), (5, 15)])
def test_exactly_the_range(client: Client, topic: str, first: int, end: int, fetch_bytes: int) -> None:
    fill(client, topic, 20)
    reading = client.range_of(client.topic(topic), 0, first, end, fetch_bytes=fetch_bytes)
    assert values(reading) == list(range(first, end))
    assert reading.position >= end


def test_only_spans_of_it(client: Client, topic: str) -> None:
    fill(client, topic, 40)
    spans = [Span(1, 2), Span(2, 3), Span(14, 15), Span(25, 26), Span(34, 38)]
    info = client.topic(topic)
    reading = client.range_of(info, 0, 2, 30, spans=spans)
    assert values(reading) == [2, 3, 14, 15, 25, 26, 27], "the rest of their batches comes along"
    assert reading.position == 30
    assert values(client.range_of(info, 0, 4, 9, spans=spans)) == []
    whole = client.range_of(info, 0, 0, 36, spans=spans)
    assert values(whole) == [1, 2, 3, 14, 15, 25, 26, 27, 34, 35]


def test_aborted_records_on_request_only(client: Client, topic: str, posthouse_session: ThreadBroker) -> None:
    client.create_topic(topic, partitions=1)
    settings = {"bootstrap.servers": posthouse_session.kafka, "transactional.id": topic}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions()
    for number, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    info = client.topic(topic)
    assert values(client.range_of(info, 0, 0, 6)) == [0, 2]
    assert values(client.range_of(info, 0, 0, 6, committed=False)) == [0, 1, 2]


def test_what_is_not_there_is_said(client: Client, topic: str) -> None:
    fill(client, topic, 4)
    with pytest.raises(OffsetGone):
        values(client.range_of(client.topic(topic), 0, 9, 12))


def test_the_position_is_where_to_go_on(topic: str) -> None:
    broker = ThreadBroker()
    broker.start()
    with Client(broker.kafka) as client:
        fill(client, topic, 20)
        reading = client.range_of(client.topic(topic), 0, 0, 20, fetch_bytes=1)
        found = []
        try:
            for number, fetched in enumerate(reading):
                found += [int(message.value or b"") for message in fetched.messages()]
                if number == 1:
                    broker.stop()
        except BrokerUnreachable:
            assert found == list(range(reading.position))
        else:
            pytest.fail("the broker was stopped, and nobody noticed")
