"""Transactions with kafka-python 3, unmodified."""

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import AbortTransactionSpec, NewTopic
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def made_topic(kafka: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics([NewTopic(topic, 2, 1)])
    admin.close()


def make_producer(kafka: str, id: str) -> Any:
    producer = KafkaProducer(bootstrap_servers=kafka, transactional_id=id)
    producer.init_transactions()
    return producer


def read(kafka: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=None, isolation_level=isolation)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    found: list[bytes] = []
    while consumer.position(partition) < end:
        for records in consumer.poll(1000).values():
            found += [record.value for record in records]
    consumer.close()
    return found


def test_commit_and_abort(kafka: str, topic: str) -> None:
    producer = make_producer(kafka, topic)
    for number in range(5):
        producer.begin_transaction()
        for partition in range(2):
            producer.send(topic, b"%d" % number, partition=partition)
        producer.flush(30)
        if number == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert read(kafka, topic) == [b"0", b"1", b"3", b"4"]
    assert read(kafka, topic, "read_uncommitted") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_second_producer_fences_the_first(kafka: str, topic: str) -> None:
    first = make_producer(kafka, topic)
    first.begin_transaction()
    first.send(topic, b"lost", partition=0).get(30)
    second = make_producer(kafka, topic)
    with pytest.raises(KafkaError):
        first.commit_transaction()
    second.begin_transaction()
    second.send(topic, b"kept", partition=0).get(30)
    second.commit_transaction()
    second.close()
    first.close(timeout=5)
    assert read(kafka, topic) == [b"kept"]


def test_offsets(kafka: str, topic: str) -> None:
    producer = make_producer(kafka, topic)
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=f"{topic}-group", enable_auto_commit=False)
    for offset, commit in ((3, True), (5, False)):
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0).get(30)
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset, "", -1)}, f"{topic}-group")
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        assert consumer.committed(partition) == 3
    producer.close()
    consumer.close()


def test_an_administrator_looks_and_aborts(kafka: str, topic: str) -> None:
    producer = make_producer(kafka, topic)
    producer.begin_transaction()
    producer.send(topic, b"hangs", partition=0).get(30)
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    partition = TopicPartition(topic, 0)
    assert [(each.transactional_id, each.state.value) for each in admin.list_transactions()[1]].count(
        (topic, "Ongoing")
    ) == 1
    described = admin.describe_transactions([topic])[topic]
    assert described.topic_partitions == {partition}
    [found] = admin.describe_producers([partition])[partition].active_producers
    assert (found.producer_id, found.current_transaction_start_offset) == (described.producer_id, 0)
    admin.abort_transaction(AbortTransactionSpec(partition, found.producer_id, found.producer_epoch))
    assert admin.describe_transactions([topic])[topic].state.value == "CompleteAbort"
    admin.close()
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    producer.close(timeout=5)
    assert read(kafka, topic) == []
