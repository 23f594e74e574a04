"""What an endpoint that does not work is spared: by Retry-After, by its circuit, by a pause, by a rate."""

import asyncio
from dataclasses import replace

from posthouse.broker.webhooks.definition import Retries
from posthouse.broker.webhooks.state import CircuitState
from tests.webhooks.receivers import Received, Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, lag, produce, records, until, webhook

MANY = [(None, b"%d" % number) for number in range(30)]


async def test_retry_after_is_honoured_for_all_messages() -> None:
    busy = [Reply(status=429, headers=(("retry-after", "1"),))]

    def answer(received: Received) -> Reply:
        return busy.pop() if busy else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, concurrency=1))
        await produce(broker, *MANY[:5])
        await until(lambda: lag(broker) == 0)
        first, second, *_ = endpoint.received
        assert second.at - first.at >= 0.99


async def test_an_endpoint_that_is_down_is_probed_one_by_one_and_loses_nothing() -> None:
    is_up = asyncio.Event()

    def answer(received: Received) -> Reply:
        return Reply() if is_up.is_set() else Reply(status=500)

    patient = Retries(max_attempts=1000, first_delay_seconds=0.05, longest_delay_seconds=0.1)
    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, retries=patient, concurrency=4))
        await produce(broker, *MANY)

        def is_open() -> bool:
            state = broker.webhooks.state("hook")
            return state is not None and state.circuit is CircuitState.OPEN

        await until(is_open)
        before = len(endpoint.received)
        assert before <= 5 + 4, "those that were under way when it opened"
        endpoint.most_in_flight = 0
        await endpoint.got(before + 5)
        assert endpoint.most_in_flight == 1
        is_up.set()
        await until(lambda: lag(broker) == 0)
        state = broker.webhooks.state("hook")
        assert state is not None and state.circuit is CircuitState.CLOSED
        assert (state.delivered, state.dead) == (len(MANY), 0)


async def test_attempts_that_find_no_server_while_the_circuit_is_open_are_not_counted() -> None:
    async with pushing_broker() as started:
        async with receiver() as gone:
            url = gone.url
        broker = started.app.broker
        await create_topic(broker)
        few = Retries(max_attempts=7, first_delay_seconds=0.02, longest_delay_seconds=0.05)
        await broker.webhooks.create(webhook(url, retries=few))
        await produce(broker, (None, b"1"))

        def failed(times: int) -> bool:
            state = broker.webhooks.state("hook")
            return state is not None and state.failed_requests >= times

        await until(lambda: failed(20))
        assert broker.topics.find("dlq.webhook.hook") is None
        assert lag(broker) == 1


async def test_gone_pauses_and_resume_goes_on() -> None:
    replies = [Reply(status=410)]

    def answer(received: Received) -> Reply:
        return replies.pop() if replies else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"1"))
        await until(lambda: broker.webhooks.get("hook").paused is not None)
        assert broker.webhooks.get("hook").paused == "the endpoint answered 410 Gone"
        await produce(broker, (None, b"2"))
        assert len(endpoint.received) == 1
        await broker.webhooks.resume("hook")
        await until(lambda: lag(broker) == 0)
        assert sorted(endpoint.bodies) == [b"1", b"1", b"2"]


async def test_a_paused_webhook_pushes_nothing_and_misses_nothing() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(replace(webhook(endpoint.url), paused="not yet"))
        await produce(broker, *MANY)
        assert not endpoint.received
        assert lag(broker) == len(MANY)
        await broker.webhooks.resume("hook")
        await until(lambda: lag(broker) == 0)
        assert sorted(endpoint.bodies) == sorted(value for _, value in MANY)


async def test_a_rate_is_not_exceeded() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, rate=10.0))
        await produce(broker, *MANY)
        received = await endpoint.got(25)
        # A bucket holds the messages of one second; the others come at their rate.
        assert received[24].at - received[0].at >= (25 - 10 - 1) / 10.0


async def test_a_slow_endpoint_has_as_many_requests_as_it_may() -> None:
    turn = asyncio.Event()
    async with pushing_broker() as started, receiver(lambda _: Reply(before=turn.wait)) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, concurrency=3))
        await produce(broker, *MANY)
        await until(lambda: endpoint.in_flight == 3)
        turn.set()
        await until(lambda: lag(broker) == 0)
        assert endpoint.most_in_flight == 3
        assert sorted(endpoint.bodies) == sorted(value for _, value in MANY)


async def test_a_timeout_while_the_rest_of_the_answer_is_missing_counts_as_answered() -> None:
    async with pushing_broker() as started, receiver(lambda _: Reply(endless=True, status=500)) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"1"))
        await until(lambda: lag(broker) == 0)
        assert len(endpoint.received) == 5
        assert len(await records(broker, "dlq.webhook.hook")) == 1
