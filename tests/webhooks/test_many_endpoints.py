"""Fifty endpoints of which ten do not work: the others get all of their messages meanwhile."""

import asyncio

from tests.webhooks.receivers import Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, lag, produce, until, webhook

WORKING = 40
HANGING = 8
REFUSING = 2
MESSAGES = 5


async def test_endpoints_that_do_not_work_do_not_hold_up_others() -> None:
    forever = asyncio.Event()
    async with (
        pushing_broker() as started,
        receiver() as works,
        receiver(lambda _: Reply(before=forever.wait)) as hangs,
    ):
        async with receiver() as gone:
            refusing = gone.url
        broker = started.app.broker
        await create_topic(broker)
        for number in range(HANGING):
            await broker.webhooks.create(webhook(hangs.url, f"hangs-{number}", timeout_seconds=300.0))
        for number in range(REFUSING):
            await broker.webhooks.create(webhook(refusing, f"refuses-{number}"))
        for number in range(WORKING):
            await broker.webhooks.create(webhook(f"{works.url}/{number}", f"works-{number}"))
        await produce(broker, *((None, b"%d" % number) for number in range(MESSAGES)))
        await until(lambda: all(lag(broker, f"works-{number}") == 0 for number in range(WORKING)))
        for number in range(WORKING):
            got = [each.body for each in works.received if each.target == f"/hook/{number}"]
            assert sorted(got) == [b"%d" % each for each in range(MESSAGES)]
        assert hangs.in_flight == HANGING * MESSAGES, "those that hang have not been given up meanwhile"
        assert all(lag(broker, f"hangs-{number}") == MESSAGES for number in range(HANGING))
        forever.set()
