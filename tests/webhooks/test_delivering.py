"""Messages of a topic get to an HTTP server, signed, and none is lost."""

import asyncio
from itertools import pairwise

import standardwebhooks

from posthouse.broker.webhooks.definition import Retries
from posthouse.broker.webhooks.secret_texts import shown_secret
from tests.webhooks.receivers import Received, Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, headers_of, lag, produce, records, until, webhook


async def test_a_message_is_one_signed_request() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        secret = await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (b"ann", b'{"total": 3}'), headers=[(b"content-type", b"application/json")])
        [received] = await endpoint.got(1)
        assert received.body == b'{"total": 3}'
        assert received.headers["content-type"] == "application/json"
        assert received.headers["posthouse-topic"] == "orders"
        assert received.headers["posthouse-key"] == "ann"
        assert received.headers["posthouse-attempt"] == "1"
        verified = standardwebhooks.Webhook(shown_secret(secret)).verify(received.body, received.headers)
        assert verified == {"total": 3}
        await until(lambda: lag(broker) == 0)


async def test_what_fails_is_tried_again_until_it_succeeds() -> None:
    failures = [Reply(hang_up=True), Reply(status=500), Reply(status=429), Reply(status=302)]

    def answer(received: Received) -> Reply:
        return failures.pop(0) if failures else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"1"))
        received = await endpoint.got(5)
        assert [each.headers["posthouse-attempt"] for each in received] == ["1", "2", "3", "4", "5"]
        assert len({each.headers["webhook-id"] for each in received}) == 1
        await until(lambda: lag(broker) == 0)
        assert [each.body for each in received] == [b"1"] * 5


async def test_dead_letters_have_the_last_answer() -> None:
    async with (
        pushing_broker() as started,
        receiver(lambda _: Reply(status=503, body=b"no room")) as endpoint,
    ):
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (b"ann", b"1"), headers=[(b"trace", b"7f3a")])
        await until(lambda: lag(broker) == 0)
        [dead] = await records(broker, "dlq.webhook.hook")
        assert (dead.key, dead.value) == (b"ann", b"1")
        headers = headers_of(dead)
        assert headers["posthouse.webhook-status"] == "503"
        assert headers["posthouse.webhook-answer"] == "no room"
        assert headers["posthouse.webhook-attempts"] == "5"
        assert headers["posthouse.dead-topic"] == "orders"
        assert headers["trace"] == "7f3a"
        assert len(endpoint.received) == 5


async def test_a_message_that_is_refused_is_a_dead_letter_at_once() -> None:
    def answer(received: Received) -> Reply:
        return Reply(status=422, body=b"no such item") if received.body == b"bad" else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"bad"), (None, b"good"))
        await until(lambda: lag(broker) == 0)
        assert sorted(endpoint.bodies) == [b"bad", b"good"]
        [dead] = await records(broker, "dlq.webhook.hook")
        assert headers_of(dead)["posthouse.webhook-status"] == "422"


async def test_a_server_that_hangs_is_left_and_asked_again() -> None:
    hangs = [True]
    forever = asyncio.Event()

    def answer(received: Received) -> Reply:
        return Reply(before=forever.wait) if hangs and hangs.pop() else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, timeout_seconds=0.3))
        await produce(broker, (None, b"1"))
        first, second = (await endpoint.got(2))[:2]
        assert second.at - first.at >= 0.25
        state = broker.webhooks.state("hook")
        assert state is not None and state.last_failure is not None
        assert state.last_failure.reason == "the endpoint did not answer in time"
        await until(lambda: lag(broker) == 0)
        forever.set()


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    async with pushing_broker() as started, receiver(lambda _: Reply(endless=True)) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"1"), (None, b"2"))
        await endpoint.got(2)
        await until(lambda: lag(broker) == 0)
        assert len(endpoint.received) == 2


async def test_connections_are_kept_alive() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, concurrency=2))
        await produce(broker, *((None, b"%d" % number) for number in range(100)))
        await until(lambda: lag(broker) == 0)
        assert sorted(endpoint.bodies) == sorted(b"%d" % number for number in range(100))
        assert endpoint.connections <= 2
        assert endpoint.most_in_flight <= 2


async def test_a_kept_connection_that_has_ended_is_replaced_at_once() -> None:
    hang_ups: list[Reply] = []

    def answer(received: Received) -> Reply:
        return hang_ups.pop() if hang_ups else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, concurrency=1))
        await produce(broker, (None, b"1"))
        await endpoint.got(1)
        hang_ups.append(Reply(hang_up=True))
        await produce(broker, (None, b"2"))
        received = await endpoint.got(3)
        assert [each.headers["posthouse-attempt"] for each in received] == ["1", "1", "1"]
        assert [each.connection for each in received] == [1, 1, 2]
        assert broker.webhooks.state("hook").failed_requests == 0  # type: ignore[union-attr]


async def test_the_back_off_is_what_is_documented() -> None:
    """Between half and the whole of the first delay, doubled each time. The machine may add to it."""
    first, longest = 0.2, 0.5
    async with pushing_broker() as started, receiver(lambda _: Reply(status=500)) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        retries = Retries(max_attempts=4, first_delay_seconds=first, longest_delay_seconds=longest)
        await broker.webhooks.create(webhook(endpoint.url, retries=retries))
        await produce(broker, (None, b"1"))
        await until(lambda: lag(broker) == 0)
        times = [each.at for each in endpoint.received]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert len(gaps) == 3
        assert all(gap >= least / 2 for gap, least in zip(gaps, (0.2, 0.4, 0.5), strict=True)), gaps
