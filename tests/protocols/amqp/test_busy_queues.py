"""A queue at work, as with its dead letters: methods that show its messages wait for the current step."""

import asyncio
from typing import Any

import pytest
from pamqp.commands import Basic, Queue

from posthouse.broker.queues import effects
from tests.protocols.amqp.rig import Rig
from tests.wire.amqp import Content

METHODS = [
    Basic.Get(queue="busy"),
    Queue.Declare(queue="busy", passive=True),
    Queue.Declare(queue="busy"),
    Queue.Purge(queue="busy"),
    Queue.Delete(queue="busy"),
]


@pytest.mark.parametrize("method", METHODS, ids=["get", "look", "declare", "purge", "delete"])
async def test_a_method_waits_for_the_step_of_its_queue(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_SECONDS", 60.0)
    async with Rig() as rig, await rig.open() as wire, await rig.open() as other:
        for name in ("busy", "idle"):
            await wire.call(1, Queue.Declare(queue=name))
        namespace = rig.broker.namespaces.get("/")
        hold = asyncio.Event()

        async def step() -> None:
            await hold.wait()

        namespace.effects.start_step(step(), "a test", namespace.queues["busy"].definition)
        wire.send(1, method)
        try:
            answer = await other.call(1, Queue.Declare(queue="idle", passive=True))
            assert answer.message_count == 0, "other queues do not wait"
            await wire.nothing()
        finally:
            hold.set()
        assert isinstance(
            (await wire.receive())[1], Basic.GetEmpty | Queue.DeclareOk | Queue.PurgeOk | Queue.DeleteOk
        )


async def test_no_method_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_SECONDS", 0.05)
    async with Rig() as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="busy"))
        wire.publish(1, "", "busy")
        namespace = rig.broker.namespaces.get("/")
        hold = asyncio.Event()

        async def step() -> None:
            await hold.wait()

        namespace.effects.start_step(step(), "a test", namespace.queues["busy"].definition)
        assert isinstance(await wire.call(1, Basic.Get(queue="busy")), Content)
        hold.set()
