"""Records of Kafka transactions, in AMQP queues: all of them at the commit, none of them without one."""

import pika
from confluent_kafka import Producer

from posthouse.testing import ThreadBroker


def test_records_come_with_the_commit(posthouse: ThreadBroker) -> None:
    host, port = posthouse.amqp.split(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel = connection.channel()
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("german")
    channel.queue_bind("german", "orders", "*.de")
    channel.queue_declare("all")

    producer = Producer({"bootstrap.servers": posthouse.kafka, "transactional.id": "till", "linger.ms": 0})
    producer.init_transactions(10)

    def waiting(queue: str) -> int:
        return int(channel.queue_declare(queue, passive=True).method.message_count)

    def write(*values: str) -> None:
        for value in values:
            producer.produce("orders", key="x.de", value=value)
            producer.produce("orders", key="x.fr", value=value)
            producer.produce("all", key="k", value=value)
        assert producer.flush(30) == 0

    producer.begin_transaction()
    write("never")
    assert (waiting("german"), waiting("all")) == (0, 0)
    producer.abort_transaction(10)
    assert (waiting("german"), waiting("all")) == (0, 0)

    producer.begin_transaction()
    write("a", "b")
    assert (waiting("german"), waiting("all")) == (0, 0)
    producer.commit_transaction(10)
    assert (waiting("german"), waiting("all")) == (2, 2)

    for queue in ("german", "all"):
        assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(3)] == [b"a", b"b", None]
    connection.close()
