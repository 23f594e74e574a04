"""Messages of one message group come one after the other, also while several consumers look."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from posthouse.broker.filters.filter import EVERYTHING
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.broker.subscriptions.leases import LeasedRun, Verdict
from posthouse.protocols.rocketmq.grpc.selection import MessageSelection
from tests.broker.subscriptions.bench import ANN, BOB, NAME, Bench

Reading = Callable[..., Awaitable[Any]]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.broker.stop()


def everything(order: KeyOrder, most: int = 10) -> MessageSelection:
    """All of these messages are of one message group: that without a name."""
    return MessageSelection("all", EVERYTHING, lambda: [EVERYTHING], most, order)


def batch_by_batch(bench: Bench, before: Callable[[int], Awaitable[object]]) -> Reading:
    """Reads one batch at a time; `before` is called with the offset, and may take its time."""
    read = bench.broker._storage.read

    async def reading(partition: Any, offset: int, *_: Any, **named: Any) -> Any:
        await before(offset)
        return await read(partition, offset, 1, **named)

    return reading


async def test_none_overtakes_those_that_had_to_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order = KeyOrder()
    for value in (b"0", b"1", b"2"):
        await bench.produce(value)
    assert await bench.fetch(ANN, most=1, selection=everything(order, 1)) == [LeasedRun(0, 0, 1)]

    async def settle(offset: int) -> None:
        if offset == 2:  # 1 was looked at, and had to wait
            assert await bench.say(ANN, 0, 0, Verdict.ACCEPT) is None

    with monkeypatch.context() as patched:
        patched.setattr(bench.broker._storage, "read", batch_by_batch(bench, settle))
        assert await bench.fetch(BOB, selection=everything(order)) == []
    assert await bench.fetch(BOB, selection=everything(order)) == [LeasedRun(1, 2, 1)]


async def test_none_overtakes_what_comes_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order = KeyOrder()
    await bench.produce(b"0")
    await bench.produce(b"1")
    assert await bench.fetch(ANN, most=1, selection=everything(order, 1)) == [LeasedRun(0, 0, 1)]

    async def give_back(offset: int) -> None:
        assert offset == 1
        assert await bench.say(ANN, 0, 0, Verdict.RELEASE) is None

    with monkeypatch.context() as patched:
        patched.setattr(bench.broker._storage, "read", batch_by_batch(bench, give_back))
        assert await bench.fetch(BOB, selection=everything(order)) == []
    bench.subscriptions.selection_changed(NAME)
    assert await bench.fetch(BOB, selection=everything(order)) == [LeasedRun(0, 0, 2), LeasedRun(1, 1, 1)]


async def test_none_overtakes_what_comes_back_before_the_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another consumer took both of them, and gave back only the first."""
    order = KeyOrder()
    await bench.produce(b"0", b"1")
    selection = everything(order)
    confirm = selection.confirm

    def too_late(*arguments: Any) -> list[int]:
        partition, subscribed, offsets = arguments
        assert offsets == [0, 1]
        order.lease(partition, [0], {0: b""})  # and has come back
        return confirm(partition, subscribed, offsets[1:])

    monkeypatch.setattr(selection, "confirm", too_late)
    assert await bench.fetch(BOB, selection=selection) == []


async def test_those_behind_wait_while_a_dead_letter_is_copied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = KeyOrder()
    await bench.broker.group_configs.replace(
        NAME, {"errors.deadletterqueue.topic.name": "dlq.workers", "share.delivery.count.limit": "2"}
    )
    await bench.produce(b"0", b"1")
    for _ in range(2):
        await bench.fetch(ANN, most=1, selection=everything(order, 1))
        bench.subscriptions.release(NAME, ANN, count=True)
    copy, copying, go = bench.subscriptions._dead_letters.copy, asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> None:
        copying.set()
        await go.wait()
        await copy(*arguments)

    monkeypatch.setattr(bench.subscriptions._dead_letters, "copy", slow)
    burying = asyncio.ensure_future(bench.fetch(ANN, most=1, selection=everything(order, 1)))
    await copying.wait()
    assert await bench.fetch(BOB, selection=everything(order)) == []
    go.set()
    assert await burying == []
    assert await bench.fetch(BOB, selection=everything(order)) == [LeasedRun(1, 1, 1)]
