"""Messages of AMQP queues are pushed, too."""

from typing import Any

import aio_pika
import pytest

from posthouse.broker.queues.queue import Queue
from posthouse.broker.webhooks.definition import Retries
from posthouse.model.errors import InvalidWebhook, UnknownQueue
from posthouse.webhooks import queue_source
from tests.webhooks.receivers import Received, Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, headers_of, lag, records, until, webhook


async def test_a_queue_is_pushed_and_its_failures_come_again() -> None:
    failures = [Reply(status=500), Reply(status=503)]

    def answer(received: Received) -> Reply:
        return failures.pop() if failures else Reply()

    async with (
        pushing_broker() as started,
        receiver(answer) as endpoint,
        await aio_pika.connect(f"amqp://guest:guest@{started.amqp}/") as connection,
    ):
        broker = started.app.broker
        channel = await connection.channel()
        await channel.declare_queue("mails", durable=True)
        await broker.webhooks.create(webhook(endpoint.url, topic=None, queue="mails"))
        message = aio_pika.Message(b"hello", content_type="text/plain")
        await channel.default_exchange.publish(message, routing_key="mails")
        received = await endpoint.got(3)
        assert [each.headers["posthouse-attempt"] for each in received] == ["1", "2", "3"]
        assert received[0].headers["content-type"] == "text/plain"
        assert len({each.headers["webhook-id"] for each in received}) == 1
        await until(lambda: lag(broker) == 0)


async def test_dead_letters_go_where_those_of_the_queue_go() -> None:
    async with (
        pushing_broker() as started,
        receiver(lambda _: Reply(status=500, body=b"oops")) as endpoint,
        await aio_pika.connect(f"amqp://guest:guest@{started.amqp}/") as connection,
    ):
        broker = started.app.broker
        channel = await connection.channel()
        dead = await channel.declare_queue("dead", durable=True)
        arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        await channel.declare_queue("mails", durable=True, arguments=arguments)
        await broker.webhooks.create(webhook(endpoint.url, topic=None, queue="mails"))
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), routing_key="mails")
        await until(lambda: broker.namespaces.get("/").queues["dead"].message_count == 1)
        letter = await dead.get()
        assert letter is not None and letter.body == b"hello"
        assert letter.headers["x-death"][0]["reason"] == "rejected"  # type: ignore[index, call-overload]
        assert letter.headers["x-webhook-status"] == "500"
        assert letter.headers["x-webhook-answer"] == "oops"
        assert len(endpoint.received) == 5
        [stored] = await records(broker, "dead")
        headers = headers_of(stored)
        assert headers["posthouse.webhook-status"] == "500"
        assert headers["posthouse.webhook-answer"] == "oops"


@pytest.mark.parametrize("arguments", [None, {"x-dead-letter-exchange": "none"}])
async def test_a_queue_without_a_dead_letter_exchange_loses_nothing(arguments: Any) -> None:
    async with (
        pushing_broker() as started,
        receiver(lambda _: Reply(status=400, body=b"no")) as endpoint,
        await aio_pika.connect(f"amqp://guest:guest@{started.amqp}/") as connection,
    ):
        broker = started.app.broker
        channel = await connection.channel()
        await channel.declare_queue("mails", durable=True, arguments=arguments)
        await broker.webhooks.create(webhook(endpoint.url, topic=None, queue="mails"))
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), routing_key="mails")
        await until(lambda: lag(broker) == 0 and broker.topics.find("dlq.webhook.hook") is not None)
        [dead] = await records(broker, "dlq.webhook.hook")
        assert dead.value == b"hello"
        assert headers_of(dead)["posthouse.webhook-status"] == "400"
        assert headers_of(dead)["posthouse.webhook-name"] == "hook"


async def test_a_queue_with_an_order_by_key_keeps_it_while_requests_fail() -> None:
    failures = [Reply(status=500), Reply(status=500)]

    def answer(received: Received) -> Reply:
        return failures.pop() if failures else Reply()

    async with (
        pushing_broker() as started,
        receiver(answer) as endpoint,
        await aio_pika.connect(f"amqp://guest:guest@{started.amqp}/") as connection,
    ):
        broker = started.app.broker
        channel = await connection.channel()
        await channel.declare_queue("mails", durable=True, arguments={"x-ordered-by-key": True})
        for number in range(10):
            message = aio_pika.Message(b"%d" % number)
            await channel.default_exchange.publish(message, routing_key="mails")
        await broker.webhooks.create(webhook(endpoint.url, topic=None, queue="mails", ordered=True))
        await until(lambda: lag(broker) == 0)
        assert endpoint.bodies == [b"0", b"0", *(b"%d" % number for number in range(10))]
        assert endpoint.most_in_flight == 1


async def test_failed_messages_wait_without_bodies_in_bounded_number_and_end_with_the_webhook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_source, "_MOST_HELD", 3)
    patient = Retries(max_attempts=1000, first_delay_seconds=3000, longest_delay_seconds=3000)
    works = False

    async with (
        pushing_broker() as started,
        receiver(lambda _: Reply(status=200 if works else 500)) as endpoint,
        await aio_pika.connect(f"amqp://guest:guest@{started.amqp}/") as connection,
    ):
        broker = started.app.broker
        channel = await connection.channel()
        await channel.declare_queue("mails", durable=True)
        queue = broker.namespaces.get("/").queues["mails"]
        assert isinstance(queue, Queue)
        for number in range(10):
            message = aio_pika.Message(b"%d" % number)
            await channel.default_exchange.publish(message, routing_key="mails")
        hook = webhook(endpoint.url, topic=None, queue="mails", concurrency=1, retries=patient)
        await broker.webhooks.create(hook)
        await until(lambda: (state := broker.webhooks.state("hook")) is not None and state.retried == 3)
        leased = [each for lane in queue.dispatcher.lanes for each in lane.leases.holders.values()]
        assert [each.value for each in leased] == [None] * 3, "no more are taken"
        await broker.webhooks.delete("hook")
        assert (queue.leased_count, queue.message_count) == (0, 10)
        works = True
        await broker.webhooks.create(hook)
        received = await endpoint.got(13)
        assert sorted(each.body for each in received[3:]) == [b"%d" % number for number in range(10)]
        await until(lambda: lag(broker) == 0)


async def test_what_a_queue_cannot_do_is_refused() -> None:
    async with (
        pushing_broker() as started,
        await aio_pika.connect(f"amqp://guest:guest@{started.amqp}/") as connection,
    ):
        broker = started.app.broker
        channel = await connection.channel()
        await channel.declare_queue("mails", durable=True)
        await channel.declare_queue("stream", durable=True, arguments={"x-queue-type": "stream"})
        await create_topic(broker)
        url = "https://example.org/"
        for wrong, message in (
            ({"queue": "stream"}, "keeps its messages"),
            ({"queue": "mails", "ordered": True}, "no order by key"),
            ({"queue": "mails", "filter": "a = 1"}, "a filter needs a topic"),
        ):
            with pytest.raises(InvalidWebhook, match=message):
                await broker.webhooks.create(webhook(url, topic=None, **wrong))
        with pytest.raises(UnknownQueue):
            await broker.webhooks.create(webhook(url, topic=None, queue="none"))
        await broker.webhooks.create(webhook(url, topic=None, queue="mails"))
        with pytest.raises(InvalidWebhook, match="only those of a topic"):
            await broker.webhooks.replay("hook", 0)
