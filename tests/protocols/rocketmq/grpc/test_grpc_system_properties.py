"""What received messages say of themselves: their type, when they were due, where dead letters come from."""

import asyncio
from collections.abc import Sequence

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import DeadLetterQueue, Message, MessageQueue
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType, TransactionResolution
from posthouse.protocols.rocketmq.grpc.messages.service import PullMessageRequest, PullMessageResponse
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from posthouse.records.builder import BatchBuilder
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire
from tests.protocols.rocketmq.grpc.conftest import StillBroker, client_of, configure
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, system
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of


async def received(client: MessagingClient, topic: str, count: int = 1) -> dict[bytes, Message]:
    """By body."""
    found: dict[bytes, Message] = {}
    async with asyncio.timeout(DEADLINE):
        while len(found) < count:
            found |= {each.body: each for each in await client.receive(topic, wait=20)}
    return found


async def pulled(client: MessagingClient, topic: str) -> Sequence[Message]:
    request = PullMessageRequest(
        group=client.resource("pulling"),
        message_queue=MessageQueue(topic=client.resource(topic), id=0),
        long_polling_timeout=Duration(),
    )
    answers = await client.responses(request, PullMessageResponse)
    return [each.message for each in answers if each.message is not None]


async def test_types(still: StillBroker) -> None:
    now = still.clock.now_ms()
    due = Timestamp.from_ms(now + 90_123)
    past = Timestamp.from_ms(now - 1)
    async with client_of(still) as client:
        await client.send("t", b"normal")
        await client.send("t", b"fifo", message_type=MessageType.FIFO, message_group="g")
        await client.send("t", b"delay", message_type=MessageType.DELAY, delivery_timestamp=due)
        await client.send("t", b"past", message_type=MessageType.DELAY, delivery_timestamp=past)
        [half] = (await client.send("t", b"half", message_type=MessageType.TRANSACTION)).entries
        commit = TransactionResolution.COMMIT
        assert await client.end_transaction("t", half.transaction_id, commit) == Code.OK
        await still.advance(91)
        found = await received(client, "t", 5)
    assert {body: system(each).message_type for body, each in found.items()} == {
        b"normal": MessageType.NORMAL,
        b"fifo": MessageType.FIFO,
        b"delay": MessageType.DELAY,
        b"past": MessageType.NORMAL,
        b"half": MessageType.TRANSACTION,
    }
    assert system(found.pop(b"delay")).delivery_timestamp == due
    assert all(system(each).delivery_timestamp is None for each in found.values())
    assert all(each.user_properties == {} for each in found.values())
    assert all(system(each).dead_letter_queue is None for each in found.values())


async def test_what_clients_of_remoting_have_sent(still: StillBroker) -> None:
    now = still.clock.now_ms()
    wanted = {
        b"level": {"DELAY": "5"},
        b"ms": {"TIMER_DELAY_MS": "60000"},
        b"seconds": {"TIMER_DELAY_SEC": "60"},
        b"time": {"TIMER_DELIVER_MS": str(now + 60_000)},
        b"level and time": {"DELAY": "5", "TIMER_DELIVER_MS": "1"},
    }
    async with remoting_client_of(still) as remoting, client_of(still) as client:
        for body, properties in wanted.items():
            assert (await remoting.send("t", body, properties=properties, d=1)).code == 0
        assert (await remoting.send("t", b"no delay", properties={"TIMER_DELIVER_MS": "1"})).code == 0
        await still.advance(61)
        found = await received(client, "t", 6)
    no_delay = system(found.pop(b"no delay"))
    assert (no_delay.message_type, no_delay.delivery_timestamp) == (MessageType.NORMAL, None)
    for each in found.values():
        when = system(each).delivery_timestamp
        assert system(each).message_type == MessageType.DELAY
        assert when is not None and when.ms == now + 60_000
        assert each.user_properties == {}


async def test_a_retry_does_not_change_when_a_message_was_due(still: StillBroker) -> None:
    now = still.clock.now_ms()
    async with remoting_client_of(still) as remoting:
        await remoting.send("t", b"v", properties={"TIMER_DELIVER_MS": str(now + 1000)}, d=1)
        await still.advance(2)
        async with asyncio.timeout(DEADLINE):
            while still.app.broker.scheduled_messages:
                await asyncio.sleep(0.01)
        [message] = await remoting.messages("t")
        back: dict[str, str | int] = {"group": "g", "offset": message.position, "originTopic": "t"}
        assert (await remoting.request(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
        await still.advance(11)
        async with asyncio.timeout(DEADLINE):
            while still.app.broker.scheduled_messages:
                await asyncio.sleep(0.01)
        [again] = await remoting.messages("%RETRY%g", consumerGroup="g")
        assert f"TIMER_DELIVER_MS\x01{now + 1000}\x02" in again.properties


async def test_dead_letters_of_this_protocol(broker: AsyncBroker, client: MessagingClient) -> None:
    await configure(broker, "group", share_delivery_count_limit="1")
    await client.send("orders", b"bad", message_id="AB12", message_group="one queue")
    [message] = await client.receive("orders")
    assert await client.forward("orders", message) == Code.OK
    async with client_of(broker, "undertaker") as other:
        [dead] = await other.receive("%DLQ%group", "undertakers", wait=20)
        assert system(dead).dead_letter_queue == DeadLetterQueue(topic="orders", message_id="AB12")
        [dead] = await pulled(other, ".DLQ.group")
        assert system(dead).dead_letter_queue == DeadLetterQueue(topic="orders", message_id="AB12")


async def test_dead_letters_of_records_of_kafka(broker: AsyncBroker, client: MessagingClient) -> None:
    """Their id is the one that the message had when it was received."""
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("orders", partitions=1)
        builder = BatchBuilder()
        builder.add(b"k", b"bad", (), 1)
        await wire.produce(topic, builder.build())
    [message] = await client.receive("orders")
    assert system(message).dead_letter_queue is None
    assert await client.forward("orders", message) == Code.OK
    [dead] = await client.receive("%DLQ%group", "undertakers", wait=20)
    expected = DeadLetterQueue(topic="orders", message_id=system(message).message_id)
    assert system(dead).dead_letter_queue == expected
    assert dead.user_properties["posthouse.dead-group"] == "group"


async def test_dead_letters_of_remoting(broker: AsyncBroker, client: MessagingClient) -> None:
    async with remoting_client_of(broker) as remoting:
        for properties in ({"UNIQ_KEY": "AB12"}, {}):
            await remoting.send("orders", b"bad", properties=properties, d=1)
        for message in await remoting.messages("orders"):
            back: dict[str, str | int] = {
                "group": "g",
                "offset": message.position,
                "originTopic": "orders",
                "originMsgId": "CD34",
                "delayLevel": -1,
            }
            assert (await remoting.request(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
    dead = await client.receive("%DLQ%g", "undertakers", wait=20)
    assert [system(each).dead_letter_queue for each in dead] == [
        DeadLetterQueue(topic="orders", message_id="AB12"),
        DeadLetterQueue(topic="orders", message_id="CD34"),
    ]


async def test_headers_that_others_have_made(broker: AsyncBroker, client: MessagingClient) -> None:
    """Consumers get the records, whatever those say of themselves."""
    many = "9" * 5000
    strange = ("", "x", "-1", "1.5", "99999999999999", "\u0665", many)
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("orders", partitions=1)
        builder = BatchBuilder()
        for text in strange:
            names = ("TIMER_DELIVER_MS", "posthouse.dead-topic", "posthouse.dead-partition")
            headers = [(name, text.encode()) for name in (*names, "posthouse.dead-offset", "TRAN_MSG")]
            builder.add(None, b"v" + text[:20].encode(), headers, 1)
        await wire.produce(topic, builder.build())
    found = await received(client, "orders", len(strange))
    assert len(found) == len(strange)
    assert {system(each).message_type for each in found.values()} <= {MessageType.NORMAL, MessageType.DELAY}
