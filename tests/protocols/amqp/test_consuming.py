"""Consumers: what they get, how much of it, and what becomes of what they do not acknowledge."""

import asyncio
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Confirm, Queue

from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.testing import AsyncBroker
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import CAPABILITIES, Wire


async def filled(wire: Wire, count: int, name: str = "q", **declared: Any) -> None:
    """A queue with so many messages, numbered from 0."""
    await wire.call(1, Queue.Declare(queue=name, **declared))
    for number in range(count):
        wire.publish(1, "", name, b"%d" % number)
    assert (await wire.call(1, Queue.Declare(queue=name, passive=True))).message_count == count


async def consume(wire: Wire, channel: int = 1, queue: str = "q", **options: Any) -> str:
    tag: str = (await wire.call(channel, Basic.Consume(queue=queue, **options))).consumer_tag
    return tag


async def bodies(wire: Wire, count: int, channel: int = 1) -> list[bytes]:
    return [(await wire.content(channel)).body for _ in range(count)]


async def ready(wire: Wire, channel: int = 1, name: str = "q") -> int:
    count: int = (await wire.call(channel, Queue.Declare(queue=name, passive=True))).message_count
    return count


async def test_messages_come_in_order_with_all_that_they_brought(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q"))
    await channel.call(1, Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.*"))
    channel.publish(1, "amq.topic", "a.b", b"body", content_type="text/plain", headers={"n": 1}, priority=3)
    channel.publish(1, "", "q", b"")
    tag = await consume(channel)
    assert tag.startswith("amq.ctag-")
    first = await channel.content(1)
    assert (first.method.exchange, first.method.routing_key, first.body) == ("amq.topic", "a.b", b"body")
    assert (first.method.consumer_tag, first.method.delivery_tag) == (tag, 1)
    assert not first.method.redelivered
    assert (first.properties.content_type, first.properties.headers) == ("text/plain", {"n": 1})
    second = await channel.content(1)
    assert (second.method.exchange, second.method.routing_key, second.body) == ("", "q", b"")


async def test_prefetch_of_a_consumer_is_what_the_channel_said_before(channel: Wire) -> None:
    await filled(channel, 10)
    await channel.call(1, Basic.Qos(prefetch_count=2))
    await consume(channel)
    assert await bodies(channel, 2) == [b"0", b"1"]
    await channel.nothing()
    await channel.call(1, Basic.Qos(prefetch_count=5))
    await channel.nothing()
    channel.send(1, Basic.Ack(1))
    assert await bodies(channel, 1) == [b"2"]
    await channel.nothing()
    await consume(channel)
    assert await bodies(channel, 5) == [b"3", b"4", b"5", b"6", b"7"]
    await channel.nothing()


async def test_prefetch_of_a_channel_is_shared_and_may_change(channel: Wire) -> None:
    await filled(channel, 3, "a")
    await filled(channel, 3, "b")
    await channel.call(1, Basic.Qos(prefetch_count=2, global_=True))
    await consume(channel, queue="a")
    assert await bodies(channel, 2) == [b"0", b"1"]
    await consume(channel, queue="b")
    await channel.nothing()
    channel.send(1, Basic.Ack(2, True))
    assert len(await bodies(channel, 2)) == 2
    await channel.nothing()
    await channel.call(1, Basic.Qos(prefetch_count=3, global_=True))
    assert len(await bodies(channel, 1)) == 1
    await channel.nothing()
    await channel.call(1, Basic.Qos(prefetch_count=0, global_=True))
    assert len(await bodies(channel, 1)) == 1


async def test_both_prefetches_hold_at_once(channel: Wire) -> None:
    await filled(channel, 9, "a")
    await filled(channel, 9, "b")
    await channel.call(1, Basic.Qos(prefetch_count=2))
    await channel.call(1, Basic.Qos(prefetch_count=3, global_=True))
    await consume(channel, queue="a")
    await bodies(channel, 2)
    await consume(channel, queue="b")
    await bodies(channel, 1)
    await channel.nothing()


async def test_messages_that_were_asked_for_count_for_no_prefetch(channel: Wire) -> None:
    await filled(channel, 4)
    await channel.call(1, Basic.Qos(prefetch_count=1, global_=True))
    assert (await channel.call(1, Basic.Get(queue="q"))).method.delivery_tag == 1
    await consume(channel)
    assert await bodies(channel, 1) == [b"1"]
    channel.send(1, Basic.Ack(1))
    await channel.nothing()
    channel.send(1, Basic.Ack(2))
    assert await bodies(channel, 1) == [b"2"]


async def test_no_more_than_a_limit_is_unacknowledged_whatever_the_prefetch() -> None:
    async with Rig(limits=AmqpLimits(max_unacked=5)) as rig, await rig.open() as wire:
        await filled(wire, 20, "a")
        await filled(wire, 5, "b")
        await consume(wire, queue="a")
        assert len(await bodies(wire, 5)) == 5
        await consume(wire, queue="b")
        await wire.nothing()
        wire.send(1, Basic.Ack(1))
        assert len(await bodies(wire, 1)) == 1
        refused = await wire.refused(1, [Basic.Get(queue="a")])
        assert refused.code == 406


async def test_without_acks_there_is_no_prefetch_and_nothing_is_kept(channel: Wire) -> None:
    await filled(channel, 20)
    await channel.call(1, Basic.Qos(prefetch_count=1))
    await consume(channel, no_ack=True)
    assert len(await bodies(channel, 20)) == 20
    await channel.call(1, Channel.Close(200, "", 0, 0))
    await channel.channel(1)
    assert await ready(channel) == 0


async def test_acks_of_several(channel: Wire) -> None:
    await filled(channel, 6)
    await consume(channel)
    await bodies(channel, 6)
    channel.send(1, Basic.Ack(4, False))
    channel.send(1, Basic.Ack(3, True))
    await channel.call(1, Channel.Close(200, "", 0, 0))
    await channel.channel(1)
    assert await ready(channel) == 2
    await consume(channel)
    again = [await channel.content(1) for _ in range(2)]
    assert [(each.body, each.method.redelivered) for each in again] == [(b"4", True), (b"5", True)]
    channel.send(1, Basic.Ack(0, True))
    channel.send(1, Basic.Ack(0, True))
    await channel.call(1, Channel.Close(200, "", 0, 0))
    await channel.channel(1)
    assert await ready(channel) == 0


async def test_nack_and_reject(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="dead"))
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await filled(channel, 6, arguments=dead)
    got = [await channel.call(1, Basic.Get(queue="q")) for _ in range(6)]
    assert [each.method.message_count for each in got] == [5, 4, 3, 2, 1, 0]
    channel.send(1, Basic.Reject(1, True))
    channel.send(1, Basic.Reject(2, False))
    channel.send(1, Basic.Nack(4, True, True))
    channel.send(1, Basic.Nack(0, True, False))
    assert [(await channel.call(1, Basic.Get(queue="q"))).body for _ in range(3)] == [b"0", b"2", b"3"]
    while await ready(channel, name="dead") < 3:
        await asyncio.sleep(0.001)
    letters = [await channel.call(1, Basic.Get(queue="dead", no_ack=True)) for _ in range(3)]
    assert sorted(each.body for each in letters) == [b"1", b"4", b"5"]
    assert letters[0].properties.headers["x-death"][0]["reason"] == "rejected"


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@pytest.mark.parametrize("method", [Basic.Recover, Basic.RecoverAsync])
async def test_recover_gives_everything_back(channel: Wire, method: Any) -> None:
    await filled(channel, 3)
    await channel.call(1, Basic.Qos(prefetch_count=3))
    await consume(channel)
    await bodies(channel, 3)
    channel.send(1, method(True))
    if method is Basic.Recover:
        await channel.expect(1, Basic.RecoverOk)
    again = [await channel.content(1) for _ in range(3)]
    assert [(each.body, each.method.redelivered) for each in again] == [(b"%d" % n, True) for n in range(3)]
    channel.send(1, Basic.Ack(6, True))


async def test_what_a_lost_client_held_goes_to_others(broker: AsyncBroker, channel: Wire) -> None:
    await filled(channel, 3)
    await consume(channel)
    await bodies(channel, 3)
    async with await Wire.to(broker).open() as other:
        await other.channel(1)
        await consume(other)
        await other.nothing()
        channel.writer.transport.abort()
        assert await bodies(other, 3) == [b"0", b"1", b"2"]


async def test_quorum_queues_count_deliveries(channel: Wire) -> None:
    await filled(channel, 1, durable=True, arguments={"x-queue-type": "quorum"})
    await consume(channel)
    first = await channel.content(1)
    assert not first.properties.headers
    channel.send(1, Basic.Nack(1, False, True))
    assert (await channel.content(1)).properties.headers == {"x-delivery-count": 1}


async def test_cancel_ends_deliveries_but_not_what_was_delivered(channel: Wire) -> None:
    await filled(channel, 2)
    await channel.call(1, Basic.Qos(prefetch_count=1))
    await consume(channel, consumer_tag="c")
    await bodies(channel, 1)
    assert (await channel.call(1, Basic.Cancel("c"))).consumer_tag == "c"
    channel.send(1, Basic.Ack(1))
    await channel.nothing()
    assert (await channel.call(1, Basic.Cancel("nobody"))).consumer_tag == "nobody"
    await consume(channel, consumer_tag="c")
    assert await bodies(channel, 1) == [b"1"]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
async def test_what_is_there_is_delivered_before_a_cancel_is_answered(
    channel: Wire, arguments: dict[str, Any]
) -> None:
    await channel.call(1, Queue.Declare(queue="q", arguments=arguments))
    for priority in (1, 5, 3, 0):
        channel.publish(1, "", "q", b"%d" % priority, priority=priority)
    channel.send(1, Basic.Consume(queue="q", consumer_tag="c"))
    channel.send(1, Basic.Cancel("c"))
    await channel.expect(1, Basic.ConsumeOk)
    assert await bodies(channel, 4) == ([b"5", b"3", b"1", b"0"] if arguments else [b"1", b"5", b"3", b"0"])
    await channel.expect(1, Basic.CancelOk)


async def test_consumers_are_told_when_their_queue_is_deleted(broker: AsyncBroker, channel: Wire) -> None:
    await filled(channel, 1)
    await consume(channel, consumer_tag="mine")
    await bodies(channel, 1)
    others = [await Wire.to(broker).open(capabilities=each) for each in (CAPABILITIES, {})]
    for other in others:
        await other.channel(1)
        await consume(other, consumer_tag="theirs")
    # Whoever deletes it gets the answer first.
    assert (await channel.call(1, Queue.Delete(queue="q"))).message_count == 0
    assert (await channel.expect(1, Basic.Cancel)).consumer_tag == "mine"
    assert (await others[0].expect(1, Basic.Cancel)).consumer_tag == "theirs"
    await others[1].nothing()
    channel.send(1, Basic.CancelOk("mine"))
    channel.send(1, Basic.Ack(1))
    await channel.nothing()
    for other in others:
        other.writer.close()


async def test_an_auto_delete_queue_goes_with_its_last_consumer(broker: AsyncBroker, channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q", auto_delete=True))
    await consume(channel, consumer_tag="a")
    await consume(channel, consumer_tag="b")
    await channel.call(1, Basic.Cancel("a"))
    assert (await channel.call(1, Queue.Declare(queue="q", passive=True))).consumer_count == 1
    await channel.call(1, Basic.Cancel("b"))
    while "q" in broker.app.broker.namespaces.get("/").queues:
        await asyncio.sleep(0.001)
    assert (await channel.refused(1, [Queue.Declare(queue="q", passive=True)])).code == 404


async def test_priorities_of_consumers(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q"))
    await channel.call(1, Basic.Qos(prefetch_count=2))
    await consume(channel, consumer_tag="low")
    await consume(channel, consumer_tag="high", arguments={"x-priority": 10})
    for _ in range(3):
        channel.publish(1, "", "q")
        await asyncio.sleep(0.01)
    tags = [(await channel.content(1)).method.consumer_tag for _ in range(3)]
    assert tags == ["high", "high", "low"]


async def test_channels_have_tags_and_consumers_of_their_own(channel: Wire) -> None:
    await channel.channel(2)
    await filled(channel, 4)
    for number in (1, 2):
        await channel.call(number, Basic.Qos(prefetch_count=1))
    for number in (1, 2):
        await consume(channel, number, consumer_tag="same")
        assert (await channel.content(number)).method.delivery_tag == 1


async def test_get(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q"))
    assert isinstance(await channel.call(1, Basic.Get(queue="q")), Basic.GetEmpty)
    await channel.call(1, Confirm.Select())
    channel.publish(1, "", "q", b"x" * 300_000, message_id="m")
    await channel.expect(1, Basic.Ack)
    got = await channel.call(1, Basic.Get(queue="q", no_ack=True))
    assert (got.body, got.properties.message_id) == (b"x" * 300_000, "m")
    assert isinstance(await channel.call(1, Basic.Get(queue="q")), Basic.GetEmpty)


async def test_no_time_to_live_and_more_than_is_handed_out_at_once(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q", arguments={"x-message-ttl": 0}))
    await consume(channel, no_ack=True)
    for number in range(1500):
        channel.publish(1, "", "q", b"%d" % number)
    assert await bodies(channel, 1500) == [b"%d" % number for number in range(1500)]


async def test_what_no_consumer_took_after_all_expires(broker: AsyncBroker, channel: Wire) -> None:
    """A consumer was ready for far more than it could take."""
    await channel.call(1, Queue.Declare(queue="dead"))
    onward = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await channel.call(1, Queue.Declare(queue="q", arguments={"x-message-ttl": 0, **onward}))
    await channel.call(1, Basic.Qos(0, 300, False))
    await consume(channel)
    async with await Wire.to(broker).open() as other:
        await other.channel()
        for _ in range(400):
            other.publish(1, "", "q")
        await bodies(channel, 300)
        while await ready(other, name="dead") < 100:
            await asyncio.sleep(0.01)
        await channel.nothing()
