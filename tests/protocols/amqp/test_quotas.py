"""Quotas: publishers are read from more slowly, consumers are sent less at a time."""

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest
from pamqp.commands import Basic, Queue

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.quotas import DEFAULT, Entity, Quota
from posthouse.protocols import stopwatch
from tests.protocols.amqp.guarded import GuardedRig
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import Wire

RATE = 100_000
KIB = 1024
EVERYTHING = (Operation.ALL, "*")


def now() -> float:
    return asyncio.get_running_loop().time()


async def limit(rig: Rig, quota: Quota, entity: Entity) -> None:
    await rig.broker.access.quotas.change(entity, {quota: RATE})


async def seconds_to_publish(wire: Wire, size: int) -> float:
    """How long it takes until the broker does what comes behind it."""
    await wire.call(1, Queue.Declare(queue="q"))
    begun = now()
    for _ in range(size // KIB):
        wire.publish(1, "", "q", b"x" * KIB)
    await wire.call(1, Queue.Declare(queue="q", passive=True))
    wire.publish(1, "", "q", b"one more")
    await wire.writer.drain()
    await wire.call(1, Basic.Qos())
    return now() - begun


@pytest.mark.parametrize(
    "entity", [Entity("ann"), Entity("ann", "mine"), Entity(None, "mine"), Entity(DEFAULT)], ids=str
)
async def test_publishers_wait_until_it_is_paid(entity: Entity) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        await limit(rig, Quota.WRITTEN, entity)
        async with await rig.log_in("ann", name="mine") as wire:
            # One second's worth is free; the rest, and what the messages are wrapped in, takes its time.
            publishing = asyncio.create_task(seconds_to_publish(wire, 130 * KIB))
            connection = await rig.paused()
            assert connection._conversation.throttle.reading.is_on
            assert connection._heartbeats.is_excused
            assert await publishing > 0.3
            assert rig.queue("q").message_count == 131


@pytest.mark.parametrize("entity", [Entity("bob"), Entity("ann", "theirs"), Entity(None, "theirs")], ids=str)
async def test_others_do_not_wait(entity: Entity) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        await limit(rig, Quota.WRITTEN, entity)
        async with await rig.log_in("ann", name="mine") as wire:
            await seconds_to_publish(wire, 500 * KIB)
            assert not rig.connections[0]._conversation.throttle.reading.is_on
            assert not rig.connections[0]._flow.is_paused


async def test_connections_of_one_user_share_a_quota() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        await limit(rig, Quota.WRITTEN, Entity("ann"))
        async with await rig.log_in("ann") as one, await rig.log_in("ann") as two:
            first = seconds_to_publish(one, 80 * KIB)
            second = seconds_to_publish(two, 80 * KIB)
            assert max(await asyncio.gather(first, second)) > 0.4


async def test_who_only_acknowledges_does_not_wait_for_the_debts_of_others() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        await limit(rig, Quota.WRITTEN, Entity("ann"))
        async with await rig.log_in("ann") as debtor, await rig.log_in("ann") as other:
            await debtor.call(1, Queue.Declare(queue="q"))
            debtor.publish(1, "", "q", b"x" * 20 * RATE)
            await rig.paused()
            begun = now()
            await other.call(1, Basic.Consume(queue="q"))
            assert len((await other.content(1)).body) == 20 * RATE
            other.send(1, Basic.Ack(1))
            await other.call(1, Basic.Qos())
            assert now() - begun < 15  # the debt takes longer


async def test_without_a_login_client_names_count() -> None:
    async with Rig() as rig:
        await limit(rig, Quota.WRITTEN, Entity(None, "mine"))
        async with await rig.open(name="mine") as mine, await rig.open(name="other") as other:
            await seconds_to_publish(other, 300 * KIB)
            assert not any(each._conversation.throttle.reading.is_on for each in rig.connections)
            assert await seconds_to_publish(mine, 130 * KIB) > 0.3


async def fill(wire: Wire, count: int, size: int) -> None:
    await wire.call(1, Queue.Declare(queue="q"))
    for _ in range(count):
        wire.publish(1, "", "q", b"x" * size)
    await wire.call(1, Queue.Declare(queue="q", passive=True))


async def all_of(wire: Wire, count: int) -> float:
    begun = now()
    for _ in range(count):
        await wire.content(1)
    return now() - begun


@pytest.mark.parametrize("no_ack", [True, False])
async def test_consumers_wait_until_it_is_paid(no_ack: bool) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        async with await rig.log_in() as admin, await rig.log_in("ann") as wire:
            await fill(admin, 160, KIB)
            await limit(rig, Quota.READ, Entity("ann"))
            await wire.call(1, Basic.Consume(queue="q", no_ack=no_ack))
            assert await all_of(wire, 160) > 0.3
            # Others get theirs meanwhile.
            await fill(admin, 160, KIB)
            assert rig.queue("q").consumer_count == 1


async def test_a_waiting_consumer_does_not_hold_up_others() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        async with await rig.log_in() as admin, await rig.log_in("ann") as wire:
            await fill(admin, 1, 20 * RATE)
            await limit(rig, Quota.READ, Entity("ann"))
            await wire.call(1, Basic.Consume(queue="q", no_ack=True))
            await wire.content(1)  # ann owes for 19 seconds
            await admin.call(1, Basic.Consume(queue="q", no_ack=True))
            begun = now()
            for _ in range(100):
                admin.publish(1, "", "q")
            await all_of(admin, 100)
            assert now() - begun < 15
            await wire.nothing()


async def test_whoever_gets_waits_too() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        async with await rig.log_in() as admin, await rig.log_in("ann") as wire:
            await fill(admin, 2, 130 * KIB)
            await limit(rig, Quota.READ, Entity("ann"))
            begun = now()
            for _ in range(2):
                assert len((await wire.call(1, Basic.Get(queue="q", no_ack=True))).body) == 130 * KIB
            assert now() - begun > 0.3


async def test_replies_are_paid_for() -> None:
    async with Rig() as rig:
        await limit(rig, Quota.READ, Entity(None, "mine"))
        async with await rig.open(name="mine") as mine, await rig.open() as other:
            await mine.call(1, Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))
            await other.call(1, Queue.Declare(queue="q"))
            mine.publish(1, "", "q", reply_to="amq.rabbitmq.reply-to")
            await other.call(1, Basic.Consume(queue="q"))
            address = (await other.content(1)).properties.reply_to or ""
            other.publish(1, "", address, b"x" * 2 * RATE)
            await mine.content(1)
            assert [each._conversation.throttle.deliveries.is_on for each in rig.connections].count(True) == 1


async def test_whoever_leaves_while_waiting_leaves_nothing_behind() -> None:
    async with Rig() as rig:
        await limit(rig, Quota.WRITTEN, Entity(None, "mine"))
        wire = await rig.open(name="mine")
        wire.publish(1, "", "nowhere", b"x" * 5 * RATE)
        throttle = (await rig.paused())._conversation.throttle
        rig.connections[0].abort()
        while rig.connections:
            await asyncio.sleep(0.001)
        assert throttle.reading._timer is None


async def test_a_stop_does_not_wait_for_debts() -> None:
    async with Rig() as rig:
        await limit(rig, Quota.WRITTEN, Entity(None, "mine"))
        wire = await rig.open(name="mine")
        wire.publish(1, "", "nowhere", b"x" * 20 * RATE)
        await rig.paused()
        rig.listener.close()
        assert (await wire.receive())[1].reply_code == 320


async def take_time(wire: Wire, times: int) -> None:
    for number in range(times):
        await wire.call(1, Queue.Declare(queue=f"q{number % 10}"))


async def test_the_brokers_time_is_paid_for() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", EVERYTHING)
        async with await rig.log_in("ann") as wire:
            # A hundred requests take some milliseconds, and the quota is one in 10 seconds.
            await rig.broker.access.quotas.change(Entity("ann"), {Quota.TIME: 0.01})
            asking = asyncio.create_task(take_time(wire, 100))
            connection = await rig.paused()
            assert connection._conversation.throttle.reading.is_on
            asking.cancel()


async def test_the_time_of_publishes_is_paid_for() -> None:
    async with Rig() as rig:
        await rig.broker.access.quotas.change(Entity(None, "mine"), {Quota.TIME: 0.01})
        async with await rig.open(name="mine") as wire:
            for _ in range(1000):
                wire.publish(1, "", "nowhere", b"x")
            assert (await rig.paused())._conversation.throttle.reading.is_on


async def test_the_time_of_methods_that_wait_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(thread_time=lambda: float(next(ticks))))
    async with Rig() as rig:
        await rig.broker.access.quotas.change(Entity(None, "mine"), {Quota.TIME: 1e9})
        async with await rig.open(name="mine") as wire:
            taken: list[float] = []

            def take(quota: Quota, user: str, client: str, amount: float) -> float:
                taken.append(amount)
                return 0.0

            monkeypatch.setattr(rig.broker.access.quotas, "take", take)
            await wire.call(1, Queue.Declare(queue="q"))
            while sum(taken) < 2:  # it came, and it was worked on by a task
                await asyncio.sleep(0)
