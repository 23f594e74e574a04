"""Declarations that are refused: arguments that make no sense, and what is there already and different.

The words are those of RabbitMQ 3.10, recorded from it; see refusals.py.
"""

from typing import Any

import pytest
from pamqp.commands import Basic, Exchange, Queue

from tests.protocols.amqp.steps import argument, declare
from tests.protocols.amqp.wire import Wire

BAD_ARGUMENTS: list[tuple[str, Any, str]] = [
    ("x-message-ttl", "soon", '"expected integer, got longstr"'),
    ("x-message-ttl", -1, "{value_negative,-1}"),
    ("x-message-ttl", 1.5, '"expected integer, got float"'),
    ("x-message-ttl", True, '"expected integer, got bool"'),
    ("x-expires", 0, "{value_zero,0}"),
    ("x-expires", -1, "{value_negative,-1}"),
    ("x-expires", "1", '"expected integer, got longstr"'),
    ("x-max-length", -1, "{value_negative,-1}"),
    ("x-max-length", "1", '"expected integer, got longstr"'),
    ("x-max-length-bytes", -1, "{value_negative,-1}"),
    ("x-overflow", "explode", "invalid_overflow"),
    ("x-overflow", 1, "{unacceptable_type,byte}"),
    ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
    ("x-max-priority", 256, "{max_value_exceeded,256}"),
    ("x-max-priority", -1, "{value_negative,-1}"),
    ("x-max-priority", "1", '"expected integer, got longstr"'),
    ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
    ("x-queue-mode", "busy", "\"unsupported queue mode 'busy'\""),
    ("x-queue-mode", 1, "{unacceptable_type,byte}"),
    ("x-queue-version", "x", '"expected integer, got longstr"'),
]
"""Of a queue: name, value, what is wrong."""

DIFFERENT: list[tuple[list[Any], str, str, str]] = [
    (
        [
            Queue.Declare(queue="r-d", auto_delete=True),
            Basic.Consume(queue="r-d"),
            Queue.Declare(queue="r-d", durable=True, auto_delete=True),
        ],
        "durable",
        "'true'",
        "'false'",
    ),
    (
        [
            Queue.Declare(queue="r-d", auto_delete=True),
            Basic.Consume(queue="r-d"),
            Queue.Declare(queue="r-d"),
        ],
        "auto_delete",
        "'false'",
        "'true'",
    ),
    ([declare({"x-max-length": 5}), declare({"x-max-length": 6})], "x-max-length", "'6'", "'5'"),
    ([declare(), declare({"x-max-length": 6})], "x-max-length", "the value '6' of type 'byte'", "none"),
    (
        [declare({"x-message-ttl": 60000}), declare()],
        "x-message-ttl",
        "none",
        "the value '60000' of type 'unsignedshort'",
    ),
    (
        [declare({"x-dead-letter-exchange": "a"}), declare({"x-dead-letter-exchange": "b"})],
        "x-dead-letter-exchange",
        "'b'",
        "'a'",
    ),
    (
        [declare({"x-single-active-consumer": True}), declare({"x-single-active-consumer": False})],
        "x-single-active-consumer",
        "'false'",
        "'true'",
    ),
    (
        [Exchange.Declare(exchange="amq.direct", exchange_type="fanout", durable=True)],
        "type",
        "'fanout'",
        "'direct'",
    ),
    ([Exchange.Declare(exchange="amq.direct", exchange_type="direct")], "durable", "'false'", "'true'"),
    (
        [Exchange.Declare(exchange="amq.direct", exchange_type="direct", durable=True, auto_delete=True)],
        "auto_delete",
        "'true'",
        "'false'",
    ),
    (
        [Exchange.Declare(exchange="amq.direct", exchange_type="direct", durable=True, internal=True)],
        "internal",
        "'true'",
        "'false'",
    ),
    (
        [
            Exchange.Declare(
                exchange="amq.direct",
                exchange_type="direct",
                durable=True,
                arguments={"alternate-exchange": "a"},
            )
        ],
        "alternate-exchange",
        "the value 'a' of type 'longstr'",
        "none",
    ),
]
"""From what is there already: steps, what differs, what was received, what there is."""


@pytest.mark.parametrize(("name", "value", "wrong"), BAD_ARGUMENTS, ids=lambda each: str(each)[:30])
async def test_bad_arguments_of_queues_are_refused(channel: Wire, name: str, value: Any, wrong: str) -> None:
    refused = await channel.refused(1, [argument(name, value)])
    text = f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'r-a' in vhost '/': {wrong}"
    assert (refused.channel, refused.code, refused.text) == (1, 406, text)
    assert (refused.class_id, refused.method_id) == (50, 10)


@pytest.mark.parametrize(("steps", "what", "received", "current"), DIFFERENT)
async def test_what_is_there_must_be_the_same(
    channel: Wire, steps: list[Any], what: str, received: str, current: str
) -> None:
    last = steps[-1]
    subject = f"queue '{last.queue}'" if isinstance(last, Queue.Declare) else f"exchange '{last.exchange}'"
    refused = await channel.refused(1, steps)
    assert (refused.channel, refused.code) == (1, 406)
    assert refused.text == (
        f"PRECONDITION_FAILED - inequivalent arg '{what}' for {subject} in vhost '/': "
        f"received {received} but current is {current}"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-max-length": 0},
        {"x-overflow": "block", "x-max-length": 1},
        {"x-overflow": "reject-publish-dlx"},
        {"x-queue-type": "classic"},
        {"x-queue-mode": "lazy", "x-queue-version": 2},
        {"x-ordered-by-key": True},
        {"x-delivery-limit": 3},
        {"x-unheard-of": [1, {"a": 2.5}]},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
    ],
    ids=str,
)
async def test_these_arguments_are_taken(channel: Wire, arguments: dict[str, Any]) -> None:
    await channel.call(1, declare(arguments))
    await channel.call(1, declare(arguments))


async def test_classic_is_what_a_queue_is_anyway(channel: Wire) -> None:
    await channel.call(1, declare())
    await channel.call(1, declare({"x-queue-type": "classic"}))


async def test_a_delayed_exchange_says_what_it_is_underneath(channel: Wire) -> None:
    delayed = Exchange.Declare(
        exchange="d",
        exchange_type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "topic"},
    )
    await channel.call(1, delayed)
    await channel.call(1, delayed)
    refused = await channel.refused(1, [Exchange.Declare(exchange="d", exchange_type="topic", durable=True)])
    assert "received 'topic' but current is 'x-delayed-message'" in refused.text
    refused = await channel.refused(
        await channel.channel(2), [Exchange.Declare(exchange="e", exchange_type="x-delayed-message")]
    )
    assert refused.code == 406


async def test_names_are_made_up_for_queues_without_one(channel: Wire) -> None:
    names = {(await channel.call(1, Queue.Declare(exclusive=True))).queue for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") and len(name) == 30 for name in names)


async def test_the_last_queue_is_meant_where_no_name_is_given(channel: Wire) -> None:
    await channel.call(1, declare(name="last"))
    await channel.call(1, Queue.Bind(exchange="amq.direct"))
    await channel.call(1, Queue.Bind(exchange="amq.topic", routing_key="k"))
    channel.publish(1, "amq.direct", "last", b"by name")
    channel.publish(1, "amq.topic", "k", b"by key")
    assert [(await channel.call(1, Basic.Get())).body for _ in range(2)] == [b"by name", b"by key"]
    await channel.call(1, Queue.Unbind(exchange="amq.direct"))
    channel.publish(1, "amq.direct", "last")
    assert (await channel.call(1, Queue.Purge())).message_count == 0
    assert (await channel.call(1, Queue.Delete())).message_count == 0


async def test_names_may_be_anything(channel: Wire) -> None:
    name = "Warteschlange für Grüße 🐎"
    declared = Queue.Declare(exclusive=True)
    declared.queue = name  # past pamqp's checks
    channel.send_unchecked(1, declared)
    assert (await channel.expect(1, Queue.DeclareOk)).queue == name


async def test_nobody_answers_where_none_waits(channel: Wire) -> None:
    channel.send(1, Queue.Declare(queue="n", exclusive=True, nowait=True))
    channel.send(1, Exchange.Declare(exchange="n", auto_delete=True, nowait=True))
    channel.send(1, Queue.Bind(queue="n", exchange="n", nowait=True))
    channel.send(1, Exchange.Bind(destination="n", source="amq.fanout", nowait=True))
    channel.send(1, Basic.Consume(queue="n", consumer_tag="c", no_ack=True, nowait=True))
    channel.publish(1, "amq.fanout", "", b"through both")
    assert (await channel.content(1)).body == b"through both"
    channel.send(1, Basic.Cancel("c", nowait=True))
    channel.send(1, Queue.Purge(queue="n", nowait=True))
    channel.send(1, Exchange.Unbind(destination="n", source="amq.fanout", nowait=True))
    channel.send(1, Queue.Delete(queue="n", nowait=True))
    channel.send(1, Exchange.Delete(exchange="n", nowait=True))
    await channel.nothing()
    refused = await channel.refused(1, [Queue.Declare(queue="n", passive=True)])
    assert refused.code == 404
