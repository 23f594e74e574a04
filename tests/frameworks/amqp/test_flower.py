"""Flower's broker page: the queues of a Celery application, by the management API."""

import asyncio

import pytest
from celery import Celery
from flower.utils.broker import Broker  # type: ignore[import-untyped]

from posthouse.testing import AsyncBroker


@pytest.mark.parametrize("login", [False, True], ids=["open", "with a login"])
async def test_flower_shows_the_queues_of_an_application(login: bool) -> None:
    users = {"flower": "secret"} if login else None
    user = "flower:secret" if login else "guest:guest"
    async with AsyncBroker(users=users) as broker:
        url = f"amqp://{user}@{broker.amqp}//"
        app = Celery("shop", broker=url)
        app.conf.task_ignore_result = True
        for queue in ("celery", "celery", "mails"):
            await asyncio.to_thread(app.send_task, "shop.order", queue=queue)
        await asyncio.to_thread(app.close)
        page = Broker(url, http_api=f"http://{user}@{broker.admin}/api/")
        shown = {each["name"]: each for each in await page.queues(["celery", "mails", "other"])}
        assert {name: each["messages"] for name, each in shown.items()} == {"celery": 2, "mails": 1}
        for name in ("messages_ready", "messages_unacknowledged", "consumers", "idle_since"):
            assert all(name in each for each in shown.values())
