"""Webhooks are created, changed, replayed and deleted while messages flow."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from posthouse.broker.webhooks.definition import Begin, Retries
from posthouse.model.errors import (
    GroupNotEmpty,
    InvalidFilter,
    InvalidWebhook,
    Unavailable,
    UnknownTopic,
    UnknownWebhook,
    WebhookExists,
)
from posthouse.testing import AsyncBroker
from posthouse.webhooks.pushing import Pushing
from tests.webhooks.receivers import PATIENCE, Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, lag, produce, until, webhook


async def test_it_begins_with_what_is_written_from_now_on() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await produce(broker, (None, b"before"))
        await broker.webhooks.create(webhook(endpoint.url, begin=Begin.LATEST))
        await produce(broker, (None, b"after"))
        await until(lambda: lag(broker) == 0)
        assert endpoint.bodies == [b"after"]


async def test_a_new_partition_is_pushed_from_its_start() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(replace(webhook(endpoint.url, begin=Begin.LATEST), paused="for now"))
        await broker.create_partitions("orders", 2)
        await produce(broker, (None, b"1"), partition=1)
        await broker.webhooks.resume("hook")
        await endpoint.got(1)
        assert endpoint.bodies == [b"1"]


async def test_replay_pushes_again_with_the_same_ids() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker, partitions=2)
        await broker.webhooks.create(webhook(endpoint.url))
        for hour in range(4):
            await produce(broker, (None, b"%d" % hour), partition=hour % 2, timestamp=hour * 3_600_000)
        await until(lambda: lag(broker) == 0)
        ids = {each.body: each.headers["webhook-id"] for each in endpoint.received}
        offsets = await broker.webhooks.replay("hook", 2 * 3_600_000)
        assert sorted(offsets.values()) == [1, 1]
        received = await endpoint.got(6)
        assert sorted(each.body for each in received[4:]) == [b"2", b"3"]
        assert all(ids[each.body] == each.headers["webhook-id"] for each in received)
        await until(lambda: lag(broker) == 0)


async def test_a_deleted_webhook_sends_no_more_and_its_name_is_free() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"1"))
        await until(lambda: lag(broker) == 0)
        await broker.webhooks.delete("hook")
        assert "webhook.hook" not in broker.subscriptions
        await produce(broker, (None, b"2"))
        with pytest.raises(UnknownWebhook):
            broker.webhooks.get("hook")
        again = replace(webhook(endpoint.url, begin=Begin.LATEST), created_ms=2)
        await broker.webhooks.create(again)
        await produce(broker, (None, b"3"))
        await until(lambda: lag(broker) == 0)
        assert endpoint.bodies == [b"1", b"3"]


async def test_a_changed_url_is_used_at_once_also_while_the_endpoint_is_down() -> None:
    async with (
        pushing_broker() as started,
        receiver(lambda _: Reply(status=500)) as wrong,
        receiver() as right,
    ):
        broker = started.app.broker
        await create_topic(broker)
        patient = replace(webhook("").retries, max_attempts=1000, first_delay_seconds=0.5)
        patient = replace(patient, longest_delay_seconds=0.5)
        await broker.webhooks.create(webhook(wrong.url, retries=patient))
        await produce(broker, *((None, b"%d" % number) for number in range(20)))
        await wrong.got(5)
        await broker.webhooks.change(
            "hook", lambda known: replace(known, target=replace(known.target, url=right.url))
        )
        await until(lambda: lag(broker) == 0)
        assert {each.body for each in right.received} == {b"%d" % number for number in range(20)}


PATIENT = Retries(max_attempts=1000, first_delay_seconds=3000, longest_delay_seconds=3000)


async def test_a_webhook_that_is_resumed_tries_at_once_what_waits() -> None:
    works = False

    async with (
        pushing_broker() as started,
        receiver(lambda _: Reply(status=200 if works else 500)) as endpoint,
    ):
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, retries=PATIENT))
        await produce(broker, (None, b"1"), (None, b"2"))
        await endpoint.got(2)
        await until(lambda: (state := broker.webhooks.state("hook")) is not None and state.retried == 2)
        await broker.webhooks.pause("hook", "for now")
        works = True
        await broker.webhooks.resume("hook")
        received = await endpoint.got(4)
        assert {each.headers["posthouse-attempt"] for each in received[2:]} == {"2"}, "they count"
        await until(lambda: lag(broker) == 0)


@pytest.mark.parametrize("change", ["pause", "rate"])
async def test_deleting_right_after_a_change_waits_for_requests(change: str) -> None:
    """Their answers would settle messages of a new webhook with the name."""
    answers = asyncio.Event()

    async with (
        pushing_broker() as started,
        receiver(lambda _: Reply(before=answers.wait)) as endpoint,
    ):
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"1"))
        await endpoint.got(1)
        if change == "pause":
            await broker.webhooks.pause("hook", "for now")
        else:
            await broker.webhooks.change(
                "hook", lambda known: replace(known, target=replace(known.target, rate=5.0))
            )
        pusher = broker.webhooks._pusher
        assert isinstance(pusher, Pushing)
        pushed = pusher._pushed["hook"]
        await until(lambda: pushed.stopping is not None)
        stopping = pushed.stopping
        assert stopping is not None
        deleting = asyncio.create_task(broker.webhooks.delete("hook"))
        await until(lambda: "hook" not in pusher._pushed)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not stopping.done() and not deleting.done()
        answers.set()
        async with asyncio.timeout(PATIENCE):
            await deleting
        assert stopping.done() and not stopping.cancelled()


async def test_a_topic_that_is_gone_is_trouble_and_heals() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url))
        await broker.delete_topics([broker.topic("orders")])

        def is_in_trouble() -> bool:
            state = broker.webhooks.state("hook")
            return state is not None and state.trouble is not None

        await until(is_in_trouble)
        await create_topic(broker)
        await produce(broker, (None, b"1"))
        await endpoint.got(1)
        await until(lambda: not is_in_trouble())


async def test_webhooks_and_their_progress_are_stored(tmp_path: Path) -> None:
    async with receiver() as endpoint:
        async with pushing_broker(data=tmp_path) as started:
            await create_topic(started.app.broker)
            made = webhook(endpoint.url, filter="a = 1", rate=5.5, concurrency=3, ordered=True)
            await started.app.broker.webhooks.create(made)
            await produce(started.app.broker, (None, b"1"), headers=[(b"a", b"1")])
            await until(lambda: lag(started.app.broker) == 0)
            [before] = started.app.broker.webhooks.all()
        async with pushing_broker(data=tmp_path) as started:
            assert started.app.broker.webhooks.all() == [before]
            await produce(started.app.broker, (None, b"2"), headers=[(b"a", b"1")])
            await endpoint.got(2)
            assert endpoint.bodies == [b"1", b"2"]


@pytest.mark.parametrize("step", ["move", "store"])
async def test_a_webhook_that_cannot_be_stored_leaves_its_name_free(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("on purpose")

    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        with monkeypatch.context() as patched:
            if step == "move":
                patched.setattr(broker.subscriptions, "move", fail)
            else:
                patched.setattr(broker.webhooks, "_store", fail)
            with pytest.raises(Unavailable, match="on purpose"):
                await broker.webhooks.create(webhook(endpoint.url))
        assert "webhook.hook" not in broker.subscriptions
        await broker.webhooks.create(webhook(endpoint.url))
        await produce(broker, (None, b"1"))
        await endpoint.got(1)


async def test_what_is_wrong_is_refused() -> None:
    async with AsyncBroker() as started:
        broker = started.app.broker
        url = "https://shop.example/"
        with pytest.raises(UnknownTopic):
            await broker.webhooks.create(webhook(url))
        await create_topic(broker)
        for wrong in (
            {"name": "a/b"},
            {"name": ""},
            {"concurrency": 0},
            {"rate": 0.0},
            {"batch": 2},
            {"timeout_seconds": 0.0},
            {"queue": "mails"},
            {"topic": None},
        ):
            with pytest.raises(InvalidWebhook):
                await broker.webhooks.create(webhook(url, **wrong))
        with pytest.raises(InvalidFilter):
            await broker.webhooks.create(webhook(url, filter="a ="))
        assert not broker.webhooks.all()
        await broker.webhooks.create(webhook(url))
        with pytest.raises(WebhookExists):
            await broker.webhooks.create(webhook(url))
        with pytest.raises(GroupNotEmpty):
            await broker.subscriptions.delete(broker.webhooks.get("hook").group)
