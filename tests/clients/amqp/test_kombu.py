"""kombu over py-amqp, unmodified: the messaging of Celery, used by itself."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from amqp.exceptions import NotFound, PreconditionFailed
from kombu import Connection, Consumer, Exchange, Producer, Queue, binding
from kombu.exceptions import OperationalError
from kombu.pools import connections, producers

from tests.clients.amqp.blocking import SECONDS
from tests.clients.amqp.rabbit import Rabbit


@pytest.fixture
def connection(rabbit: Rabbit) -> Iterator[Any]:
    with Connection(rabbit.url, transport_options={"confirm_publish": True}) as made:
        yield made


@pytest.fixture
def queue(connection: Any, name: str) -> Any:
    """A direct exchange and a queue of one name, as Celery has them."""
    return Queue(name, Exchange(name, "direct", auto_delete=True), name, auto_delete=True)


def drain(connection: Any, received: list[Any], count: int) -> None:
    while len(received) < count:
        connection.drain_events(timeout=SECONDS)


@pytest.mark.parametrize("serializer", ["json", "pickle"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_producer_and_consumer(connection: Any, queue: Any, serializer: str, compression: str | None) -> None:
    received: list[Any] = []

    def receive(body: Any, message: Any) -> None:
        received.append((body, message.headers["number"], message.properties["correlation_id"]))
        message.ack()

    body = {"text": "wörter " * 50, "list": [1, 2.5, None]}
    with Consumer(connection, queue, callbacks=[receive], accept=[serializer]):
        Producer(connection).publish(
            body,
            exchange=queue.exchange,
            routing_key=queue.routing_key,
            serializer=serializer,
            compression=compression,
            headers={"number": 7},
            correlation_id="c",
        )
        drain(connection, received, 1)
    assert received == [(body, 7, "c")]


def test_streams(connection: Any, name: str) -> None:
    """Two consumers read all of it, one from the beginning and one from an offset."""

    def stream(start: Any) -> Any:
        return Queue(
            name,
            Exchange(name, "fanout", auto_delete=True),
            durable=True,
            auto_delete=False,
            queue_arguments={"x-queue-type": "stream"},
            consumer_arguments={"x-stream-offset": start},
        )

    with Producer(connection) as producer:
        for number in range(10):
            producer.publish(
                number, exchange=stream("first").exchange, declare=[stream("first")], serializer="json"
            )
    for start, first in (("first", 0), (7, 7)):
        received: list[Any] = []

        def receive(body: Any, message: Any, received: list[Any] = received) -> None:
            received.append((message.headers["x-stream-offset"], body))
            message.ack()

        with Consumer(
            connection.channel(), stream(start), callbacks=[receive], accept=["json"], prefetch_count=2
        ):
            drain(connection, received, 10 - first)
        assert received == [(number, number) for number in range(first, 10)]
    connection.default_channel.queue_delete(name)


def test_simple_queue(connection: Any, name: str) -> None:
    queue = connection.SimpleQueue(name)
    for number in range(3):
        queue.put({"number": number})
    assert queue.qsize() == 3
    for number in range(3):
        message = queue.get(timeout=SECONDS)
        assert message.payload == {"number": number}
        message.ack()
    with pytest.raises(queue.Empty):
        queue.get(block=False)
    assert queue.clear() == 0
    queue.close()
    Queue(name)(connection.default_channel).delete()


def test_simple_buffer(connection: Any, name: str) -> None:
    buffer = connection.SimpleBuffer(name)
    buffer.put("passing")
    assert buffer.get(timeout=SECONDS).payload == "passing"
    buffer.close()


def test_several_bindings(connection: Any, name: str) -> None:
    exchange = Exchange(name, "topic", auto_delete=True)
    queue = Queue(name, [binding(exchange, "a.*"), binding(exchange, "*.b")], auto_delete=True)
    received: list[str] = []

    def receive(body: str, message: Any) -> None:
        received.append(body)
        message.ack()

    with Consumer(connection, queue, callbacks=[receive]):
        producer = Producer(connection, exchange)
        for key in ("a.x", "x.y", "x.b", "a.b"):
            producer.publish(key, routing_key=key)
        drain(connection, received, 3)
    assert received == ["a.x", "x.b", "a.b"]


def test_prefetch_is_raised_while_consuming(connection: Any, queue: Any) -> None:
    """Celery does so for every message that has to wait."""
    received: list[Any] = []
    with Consumer(connection, queue, callbacks=[lambda body, message: received.append(message)]) as consumer:
        consumer.qos(prefetch_count=2, apply_global=True)
        for number in range(5):
            Producer(connection).publish(number, exchange=queue.exchange, routing_key=queue.routing_key)
        drain(connection, received, 2)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)
        consumer.qos(prefetch_count=3, apply_global=True)
        drain(connection, received, 3)
        for message in received:
            message.ack()
        drain(connection, received, 5)
    assert [message.payload for message in received] == [0, 1, 2, 3, 4]


def test_what_a_lost_connection_held_goes_to_another(rabbit: Rabbit, name: str) -> None:
    """Cut without a word, as by a crash."""
    queue, received = Queue(name, durable=False, max_length=100), []
    with Connection(rabbit.url) as lost, Connection(rabbit.url) as other:
        bound = queue(lost.default_channel)
        bound.declare()
        Producer(lost).publish("work", routing_key=name)
        held = None
        while held is None:
            held = bound.get()
        assert queue(other.default_channel).get() is None
        cut = lost.connection.transport.sock
        cut.shutdown(socket.SHUT_RDWR)
        with Consumer(other, queue, callbacks=[lambda body, message: received.append(message)], no_ack=True):
            drain(other, received, 1)
        assert (received[0].payload, received[0].delivery_info["redelivered"]) == ("work", True)
        queue(other.default_channel).delete()
        lost.collect()


def test_publish_survives_a_cut_connection(rabbit: Rabbit, connection: Any, name: str) -> None:
    """kombu connects again and publishes again, when it is asked to."""
    queue = Queue(name, Exchange(name, "direct", auto_delete=True), name, auto_delete=True)
    queue(connection.default_channel).declare()
    with Connection(rabbit.url) as other:
        producer = Producer(other)
        producer.publish("one", exchange=queue.exchange, routing_key=name, retry=True)
        other.connection.transport.sock.shutdown(socket.SHUT_RDWR)
        producer.publish(
            "two", exchange=queue.exchange, routing_key=name, retry=True, retry_policy={"interval_start": 0}
        )
    received: list[str] = []
    with Consumer(connection, queue, callbacks=[lambda body, message: received.append(body)], no_ack=True):
        drain(connection, received, 2)
    assert received == ["one", "two"]


def test_pools(rabbit: Rabbit, name: str) -> None:
    made = Connection(rabbit.url)
    with connections[made].acquire(block=True) as connection:
        Queue(name, durable=False)(connection.default_channel).declare()
    for number in range(5):
        with producers[made].acquire(block=True) as producer:
            producer.publish(number, routing_key=name)
    with connections[made].acquire(block=True) as connection:
        channel, received = connection.default_channel, []
        queue = Queue(name, durable=False)
        with Consumer(channel, queue, callbacks=[lambda body, _: received.append(body)], no_ack=True):
            drain(connection, received, 5)
        queue(channel).delete()
    connections[made].force_close_all()
    producers[made].force_close_all()
    assert received == [0, 1, 2, 3, 4]


def test_errors(connection: Any, name: str) -> None:
    with pytest.raises(NotFound):
        Queue(name)(connection.channel()).get()
    Queue(name, durable=False)(connection.channel()).declare()
    with pytest.raises(PreconditionFailed):
        Queue(name, durable=True)(connection.channel()).declare()
    Queue(name)(connection.channel()).delete()


def test_nobody_there(unused_tcp_port: int) -> None:
    with pytest.raises(OperationalError):
        Connection(f"amqp://127.0.0.1:{unused_tcp_port}").ensure_connection(max_retries=1, interval_start=0)


def test_server_properties(connection: Any) -> None:
    """kombu and Celery look at these."""
    connection.ensure_connection()
    properties = connection.connection.server_properties
    assert {"product", "version", "capabilities"} <= set(properties)
    wanted = {
        *("publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify"),
        *("consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to"),
    }
    assert wanted <= {name for name, there in properties["capabilities"].items() if there}
