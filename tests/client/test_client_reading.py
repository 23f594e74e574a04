"""Reading: places to begin, partitions, following, what happens to offsets that are gone."""

import threading

import pytest

from posthouse.client import Client, Message, Start
from posthouse.client.errors import OffsetGone, PartitionNotFound, RecordsDamaged, TopicNotFound
from posthouse.client.reading import Fetched
from posthouse.protocols.kafka.codec.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from posthouse.testing import ThreadBroker

HOUR = 3_600_000
BASE = 1_700_000_000_000


def fill(client: Client, topic: str, count: int = 10, partitions: int = 1) -> None:
    """Records 0, 1, … an hour apart, round the partitions, each in a batch of its own with the next."""
    client.create_topic(topic, partitions=partitions)
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%d" % number, partition=number % partitions, timestamp=BASE + number * HOUR)
            if number % 4 == 3:
                producer.flush()


def values(messages: list[Message]) -> list[int]:
    return [int(message.value or b"") for message in messages]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Start.beginning(), range(10)),
        (Start.end(), range(0)),
        (Start.at(0), range(10)),
        (Start.at(6), range(6, 10)),
        (Start.at(10), range(0)),
        (Start.at(-3), range(7, 10)),
        (Start.at(-99), range(10)),
        (Start.since(BASE + 6 * HOUR), range(6, 10)),
        (Start.since(BASE + 5 * HOUR + 1), range(6, 10)),
        (Start.since(BASE + 99 * HOUR), range(0)),
    ],
    ids=str,
)
def test_places_to_begin(client: Client, topic: str, start: Start, expected: range) -> None:
    fill(client, topic)
    assert values(list(client.messages(topic, start))) == list(expected)


def test_chosen_partitions(client: Client, topic: str) -> None:
    fill(client, topic, partitions=3)
    found = list(client.messages(topic, partitions=[2, 0]))
    assert {message.partition for message in found} == {0, 2}
    assert sorted(values(found)) == [0, 2, 3, 5, 6, 8, 9]


def test_offsets_by_place(client: Client, topic: str) -> None:
    fill(client, topic, partitions=2)
    assert client.offsets(topic, Start.beginning()) == {0: 0, 1: 0}
    assert client.offsets(topic, Start.end()) == {0: 5, 1: 5}
    assert client.offsets(topic, Start.since(BASE + 9 * HOUR), partitions=[1]) == {1: 4}
    assert client.offsets(topic, Start.since(BASE + 9 * HOUR)) == {0: 5, 1: 4}


def test_reading_ends_where_the_log_ended_when_it_began(client: Client, topic: str) -> None:
    fill(client, topic, count=3)
    messages = client.messages(topic)
    first = next(messages)
    with client.producer(topic) as producer:
        producer.send(b"99")
    assert values([first, *messages]) == [0, 1, 2]


def test_following_waits_for_what_is_yet_to_come(
    posthouse_session: ThreadBroker, client: Client, topic: str
) -> None:
    fill(client, topic, count=2)
    seen = threading.Event()

    def write() -> None:
        assert seen.wait(10)
        with Client(posthouse_session.kafka) as other, other.producer(topic) as producer:
            producer.send(b"2")

    writer = threading.Thread(target=write)
    writer.start()
    messages = client.messages(topic, follow=True)
    found = [next(messages), next(messages)]
    seen.set()
    found.append(next(messages))
    writer.join()
    assert values(found) == [0, 1, 2]


def test_following_from_the_end_sees_new_messages_only(client: Client, topic: str) -> None:
    fill(client, topic, count=2)
    reading = client.reading(topic, Start.end(), follow=True)
    with client.producer(topic) as producer:
        producer.send(b"2")
    assert values(list(next(iter(reading)).messages())) == [2]


def test_many_records_over_many_fetches(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        for number in range(6000):
            producer.send(b"%06d" % number + b"x" * 1000, partition=number % 2)
    found = list(client.messages(topic))
    assert len(found) == 6000
    for partition in (0, 1):
        own = [message.offset for message in found if message.partition == partition]
        assert own == list(range(3000))


def test_fetched_bytes_stay_views_until_they_are_decoded(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    with client.producer(topic) as producer:
        producer.send(b"x" * 5000)
    [fetched] = client.reading(topic, Start.beginning())
    assert isinstance(fetched.data, memoryview)


def test_records_that_are_let_go_while_we_read_are_passed_over(client: Client, topic: str) -> None:
    fill(client, topic, count=8)
    reading = client.reading(topic, Start.beginning(), follow=True)
    trim(client, topic, 4)
    assert values(list(next(iter(reading)).messages())) == [4, 5, 6, 7]


def test_an_offset_below_the_first_means_the_first(client: Client, topic: str) -> None:
    fill(client, topic, count=8)
    trim(client, topic, 4)
    assert values(list(client.messages(topic, Start.at(1)))) == [4, 5, 6, 7]


def test_refusals(client: Client, topic: str) -> None:
    fill(client, topic, count=3)
    with pytest.raises(TopicNotFound):
        list(client.messages("nope"))
    with pytest.raises(PartitionNotFound):
        list(client.messages(topic, partitions=[1]))
    with pytest.raises(OffsetGone, match=r"offset 4 lies behind the end .* at 3; choose a lower one"):
        list(client.messages(topic, Start.at(4)))


def test_records_that_cannot_be_decoded_are_named(client: Client, topic: str) -> None:
    fill(client, topic, count=1)
    [fetched] = client.reading(topic, Start.beginning())
    broken = bytearray(fetched.data)
    broken[61] = 0x7F
    with pytest.raises(RecordsDamaged, match=r"partition 3 from offset 0 on cannot be read"):
        list(Fetched(partition=3, data=broken, first=0, end=None).messages())


def trim(client: Client, topic: str, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
    [answer] = client._cluster.any().ask(request, DeleteRecordsResponse).topics
    assert [each.error_code for each in answer.partitions] == [0]
