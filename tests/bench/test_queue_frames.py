"""What the load generator writes by hand is what pamqp reads."""

from typing import Any

import pytest
from pamqp import body, commands, frame, header

from bench.queues import frames
from bench.queues.connection import Connection, Refused
from tests.bench.pamqp_server import ANSWERS, FRAME_MAX, Server


def decoded(data: bytes) -> list[Any]:
    found = []
    while data:
        size, channel, each = frame.unmarshal(data)
        assert channel == frames.CHANNEL
        data = data[size:]
        found.append(each)
    return found


@pytest.mark.parametrize("size", [0, 1, 128, 10_240, FRAME_MAX - 8, FRAME_MAX, 300_000])
def test_a_publish_is_a_persistent_message(size: int) -> None:
    sent = bytes(each % 251 for each in range(size))
    method, properties, *parts = decoded(frames.publish("amq.fanout", "some.key", sent, FRAME_MAX))
    assert isinstance(method, commands.Basic.Publish)
    assert (method.exchange, method.routing_key) == ("amq.fanout", "some.key")
    assert not method.mandatory
    assert isinstance(properties, header.ContentHeader)
    assert properties.body_size == size
    given = {name: value for name, value in properties.properties if value}
    assert given == {"delivery_mode": 2}
    assert all(isinstance(part, body.ContentBody) for part in parts)
    assert b"".join(part.value or b"" for part in parts) == sent
    assert len(parts) == -(-size // (FRAME_MAX - 8))


def test_a_delivery_of_the_sink_is_one() -> None:
    method, _, part = decoded(frames.deliver("c0007", 1234, "from", "key", b"body", FRAME_MAX))
    assert isinstance(method, commands.Basic.Deliver)
    assert (method.consumer_tag, method.delivery_tag, method.redelivered) == ("c0007", 1234, False)
    assert (method.exchange, method.routing_key, part.value) == ("from", "key", b"body")


@pytest.mark.parametrize("is_multiple", [True, False])
def test_an_ack_is_an_ack(is_multiple: bool) -> None:
    theirs = frame.marshal(commands.Basic.Ack(2**40 + 1, is_multiple), frames.CHANNEL)
    assert frames.ack(2**40 + 1, multiple=is_multiple) == theirs


def test_a_connection_says_what_it_means() -> None:
    server = Server()
    with Connection(server.port) as connection:
        assert connection.frame_max == FRAME_MAX
        connection.declare_queue("queue")
        connection.declare_fanout("exchange")
        connection.bind("queue", "exchange")
        connection.confirm()
        connection.prefetch(1000)
        connection.consume("queue", "c0000")
        assert connection.waiting("queue") == 17
        connection.purge("queue")
        assert connection.take_rest() == b""
    server.join()
    heard = {each.name: each for each in server.heard[1:]}
    assert heard["Connection.StartOk"].mechanism == "PLAIN"
    assert heard["Connection.StartOk"].response == "\0guest\0guest"
    assert heard["Connection.TuneOk"].heartbeat == 0
    assert heard["Connection.Open"].virtual_host == "/"
    durable, passive = (each for each in server.heard[1:] if each.name == "Queue.Declare")
    assert (durable.queue, durable.durable) == ("queue", True)
    assert not (durable.passive or durable.exclusive or durable.auto_delete)
    assert (passive.queue, passive.passive) == ("queue", True)
    assert (heard["Exchange.Declare"].exchange_type, heard["Exchange.Declare"].durable) == ("fanout", True)
    assert (heard["Queue.Bind"].queue, heard["Queue.Bind"].exchange) == ("queue", "exchange")
    assert heard["Basic.Qos"].prefetch_count == 1000
    assert heard["Basic.Consume"].consumer_tag == "c0000"
    assert heard["Basic.Consume"].nowait
    assert not heard["Basic.Consume"].no_ack
    assert heard["Queue.Purge"].queue == "queue"
    assert heard["Connection.Close"].reply_code == 200


def test_a_refusal_is_told_with_its_reason() -> None:
    close = commands.Channel.Close(406, "PRECONDITION_FAILED - no", 50, 10)
    server = Server({**ANSWERS, "Queue.Declare": close})
    with pytest.raises(Refused, match="406, PRECONDITION_FAILED - no"), Connection(server.port) as connection:
        connection.declare_queue("queue")
