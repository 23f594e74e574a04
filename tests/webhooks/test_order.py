"""Messages of one key are pushed one after the other, also while some of them fail; others go on."""

import asyncio
import json
from collections import defaultdict
from random import Random

from tests.webhooks.receivers import Received, Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, lag, produce, until, webhook

KEYS = 5
OF_EACH = 12


def key_of(received: Received) -> str:
    return received.headers["posthouse-key"]


async def test_order_per_key_holds_while_requests_fail() -> None:
    random = Random(17)
    under_way: defaultdict[str, int] = defaultdict(int)
    overlapping: list[str] = []
    succeeded: defaultdict[str, list[int]] = defaultdict(list)

    def answer(received: Received) -> Reply:
        key = key_of(received)
        under_way[key] += 1
        if under_way[key] > 1:
            overlapping.append(key)
        fails = random.random() < 0.25

        async def slowly() -> None:
            await asyncio.sleep(0.001)
            under_way[key] -= 1
            if not fails:
                succeeded[key].append(json.loads(received.body))

        return Reply(status=500 if fails else 200, before=slowly)

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker, partitions=2)
        hook = webhook(endpoint.url, ordered=True)
        await broker.webhooks.create(hook)
        for number in range(OF_EACH):
            for key in range(KEYS):
                await produce(broker, (b"%d" % key, b"%d" % number), partition=key % 2)
        await until(lambda: lag(broker) == 0)
    assert not overlapping
    assert succeeded == {str(key): list(range(OF_EACH)) for key in range(KEYS)}


async def test_without_an_order_they_overlap() -> None:
    """The negative control: the test above can fail."""
    both = asyncio.Event()
    count = 0

    def answer(received: Received) -> Reply:
        nonlocal count
        count += 1
        if count == 2:
            both.set()
        return Reply(before=both.wait)

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (b"a", b"1"), (b"a", b"2"))
        await until(lambda: lag(broker) == 0)
        assert endpoint.most_in_flight == 2


async def test_a_change_of_the_webhook_keeps_the_order() -> None:
    replies = [Reply(status=500)]

    def answer(received: Received) -> Reply:
        return replies.pop() if replies else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        from dataclasses import replace

        hook = webhook(endpoint.url, ordered=True)
        slow = replace(hook.retries, first_delay_seconds=1.0, longest_delay_seconds=1.0)
        await broker.webhooks.create(replace(hook, retries=slow))
        await produce(broker, (b"a", b"1"), (b"a", b"2"))
        await endpoint.got(1)
        target = replace(hook.target, concurrency=3)
        await broker.webhooks.change("hook", lambda known: replace(known, target=target))
        await until(lambda: lag(broker) == 0)
        assert endpoint.bodies == [b"1", b"1", b"2"]


async def test_a_batch_has_each_key_once() -> None:
    from posthouse.broker.webhooks.definition import Form

    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await produce(broker, *((b"%d" % (number % 3), b"%d" % number) for number in range(9)))
        await broker.webhooks.create(webhook(endpoint.url, form=Form.STRUCTURED, batch=10, ordered=True))
        await until(lambda: lag(broker) == 0)
        batches = [json.loads(each) for each in endpoint.bodies]
        assert [[each["data"] for each in batch] for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
