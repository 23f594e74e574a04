"""ReceiveMessage: what is given to whom, and how long a call waits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.grpc.handlers import receive
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Message
from posthouse.protocols.rocketmq.grpc.messages.service import ReceiveMessageRequest, ReceiveMessageResponse
from posthouse.records.builder import BatchBuilder
from posthouse.records.header_section import encode_section
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT, StillBroker, client_of
from tests.protocols.rocketmq.grpc.messaging_client import (
    DEADLINE,
    MessagingClient,
    attempt,
    bodies,
    receipt,
    system,
)

MIB = 1024 * 1024


async def waiting(broker: "AsyncBroker | StillBroker", count: int = 1, group: str = "group") -> None:
    """Until so many calls wait for messages."""
    fetching = broker.app.broker.subscriptions._fetching
    async with asyncio.timeout(DEADLINE):
        while len(fetching._waiting.get(GroupId(group), ())) != count:
            await asyncio.sleep(0.001)


def leased(broker: AsyncBroker) -> int:
    """Messages that the group's consumers have of the topic."""
    partitions = broker.app.broker.topic("orders").partition_ids()
    found = [broker.app.broker.subscriptions.find(GroupId("group"), each) for each in partitions]
    return sum(each.leased for each in found if each is not None)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():
            await asyncio.sleep(0.001)


async def test_a_call_takes_of_all_queues(client: MessagingClient) -> None:
    """Whatever queue it names."""
    sent = [b"%02d" % number for number in range(20)]
    await client.send("orders", *sent)
    messages = await client.receive("orders", queue=2, most=12)
    assert len(messages) == 12
    messages += await client.receive("orders", queue=0)
    assert bodies(messages) == sent
    assert {system(each).queue_id for each in messages} == {0, 1, 2, 3}
    assert {attempt(each) for each in messages} == {1}
    assert len({receipt(each) for each in messages}) == 20
    assert await client.receive("orders") == []


async def test_two_consumers_share(broker: AsyncBroker, client: MessagingClient) -> None:
    async with client_of(broker, "other") as other:
        sent = [b"%02d" % number for number in range(20)]
        await client.send("orders", *sent)
        messages = await client.receive("orders", most=10)
        messages += await other.receive("orders")
        assert bodies(messages) == sent
        assert bodies(await other.receive("orders", "others")) == sent


async def test_a_call_waits(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send("orders", b"first")
    assert len(await client.receive("orders")) == 1
    call = asyncio.create_task(client.receive("orders", wait=20))
    await waiting(broker)
    await client.send("orders", b"second")
    assert bodies(await call) == [b"second"]


async def test_a_call_ends_before_its_deadline(
    client: MessagingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it asks for a longer wait: an answer is better than none."""
    await client.send("orders")
    assert len(await client.receive("orders")) == 1
    request = client.receive_request("orders", wait=60)
    for before in (DEADLINE - 0.5, DEADLINE + 10):
        monkeypatch.setattr(receive, "_BEFORE_DEADLINE", before)
        [only] = await client.responses(request, ReceiveMessageResponse, timeout=DEADLINE)
        assert only.status is not None
        assert only.status.code == Code.MESSAGE_NOT_FOUND


async def test_messages_come_again(still: StillBroker) -> None:
    async with client_of(still) as client:
        await client.send("orders", b"v")
        [first] = await client.receive("orders", invisible=15)
        assert system(first).invisible_duration is not None
        assert system(first).invisible_duration.ms == 15_000  # type: ignore[union-attr]
        await still.advance(14.9)
        assert await client.receive("orders") == []
        call = asyncio.create_task(client.receive("orders", wait=20))
        await waiting(still)
        await still.advance(0.2)
        [second] = await call
        assert (second.body, attempt(second)) == (b"v", 2)
        assert receipt(second) != receipt(first)


async def test_a_push_consumer_keeps_messages(still: StillBroker) -> None:
    """While it lives."""
    async with client_of(still, "push") as push, client_of(still, "other") as other:
        await push.send("orders", b"v")
        assert len(await push.receive("orders", invisible=None)) == 1
        for _ in range(20):
            await still.advance(55)
            await push.beat("group")
        assert await other.receive("orders") == []
        await still.advance(3 * 3600 - 1100)
        [again] = await other.receive("orders")
        assert attempt(again) == 2


async def test_a_cancelled_wait_takes_nothing(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send("orders", b"first")
    assert len(await client.receive("orders")) == 1
    call = client.stream(client.receive_request("orders", wait=20))
    await waiting(broker)
    call.cancel()
    await waiting(broker, 0)
    await client.send("orders", b"second")
    [message] = await client.receive("orders")
    assert (message.body, attempt(message)) == (b"second", 1)


async def test_a_cancelled_call_gives_messages_back(broker: AsyncBroker, client: MessagingClient) -> None:
    """It was cancelled while the broker sent them: the client does not read."""
    for number in range(6):
        await client.send("orders", b"%d" % number + bytes(MIB - 10_000))
    async with client_of(broker, "slow") as slow:
        call = slow.stream(slow.receive_request("orders"))
        await until(lambda: leased(broker) > 0)
        call.cancel()
        await until(lambda: leased(broker) == 0)
    messages: list[Message] = []
    while found := await client.receive("orders"):
        messages += found
    assert sorted(each.body[:1] for each in messages) == [b"%d" % number for number in range(6)]
    assert {attempt(each) for each in messages} == {1}


async def test_an_attempt_is_repeated(broker: AsyncBroker, client: MessagingClient) -> None:
    """The client has not got the answer: the same messages come, and they do not count as delivered twice."""
    await client.send("orders", b"a", b"b", b"c")
    first = await client.receive("orders", attempt="1")
    again = await client.receive("orders", attempt="1")
    assert bodies(first) == bodies(again) == [b"a", b"b", b"c"]
    assert {attempt(each) for each in again} == {1}
    assert await client.receive("orders", attempt="2") == []
    async with client_of(broker, "other") as other:
        assert await other.receive("orders", attempt="1") == []
    assert await client.ack("orders", *again) == Code.OK
    assert await client.receive("orders", attempt="1") == []


async def test_filters(client: MessagingClient) -> None:
    for tag in ("red", "green", "blue"):
        await client.send("orders", tag.encode(), tag=tag, properties={"length": str(len(tag))})
    await client.send("orders", b"none")
    assert bodies(await client.receive("orders", "tags", expression="red || blue")) == [b"blue", b"red"]
    assert bodies(await client.receive("orders", "all", expression="*")) == [
        b"blue",
        b"green",
        b"none",
        b"red",
    ]
    assert bodies(await client.receive("orders", "sql", sql="length > 3")) == [b"blue", b"green"]
    assert await client.receive_code("orders", "bad", sql="length >") == Code.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize("first", ["red", "green"])
async def test_consumers_with_different_filters_lose_nothing(
    broker: AsyncBroker, client: MessagingClient, first: str
) -> None:
    async with client_of(broker, "green") as green:
        consumers = {"red": client, "green": green}
        for tag, consumer in consumers.items():
            await client.send("orders", b"to make the topic", tag="none")
            assert await consumer.receive("orders", expression=tag) == []
        for number in range(20):
            await client.send("orders", b"%02d" % number, tag="red" if number % 3 else "green")
        tags = [first, *(consumers.keys() - {first})]
        for tag in tags:
            messages = await consumers[tag].receive("orders", expression=tag)
            wanted = [number for number in range(20) if bool(number % 3) == (tag == "red")]
            assert bodies(messages) == [b"%02d" % number for number in wanted]
            assert await consumers[tag].ack("orders", *messages) == Code.OK


async def test_a_consumer_changes_its_filter(broker: AsyncBroker, client: MessagingClient) -> None:
    """What nobody wants is passed over, and what somebody else waits for is there for whoever asks later."""
    async with client_of(broker, "other") as other:
        await client.send("orders", b"red", tag="red")
        assert await other.receive("orders", expression="red", most=1) != []
        await client.send("orders", b"red 2", tag="red")
        assert await client.receive("orders", expression="green") == []
        [message] = await client.receive("orders", expression="red")
        assert message.body == b"red 2"


async def test_records_of_kafka(broker: AsyncBroker, client: MessagingClient) -> None:
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t")
        builder = BatchBuilder()
        section = encode_section([(b"TAGS", b"red"), (b"tenant", "blåu".encode()), (b"raw", b"\xff")])
        builder.add_raw(b"key", b"value", section, 1_700_000_000_000)
        builder.add(None, None, timestamp=1_700_000_000_001)
        await wire.produce(topic, builder.build())
    tagged = await client.receive("t", expression="red")
    assert len(tagged) == 1
    [tagged_message] = tagged
    found = system(tagged_message)
    assert (tagged_message.body, tagged_message.user_properties) == (b"value", {"tenant": "blåu"})
    assert (found.tag, found.keys, found.queue_offset) == ("red", ("key",), 0)
    assert found.message_id and found.store_timestamp is not None
    assert found.store_timestamp.ms == 1_700_000_000_000
    messages = await client.receive("t", "others")
    assert bodies(messages) == [b"", b"value"]
    assert {system(each).message_id for each in messages} >= {found.message_id}


async def test_transactions_of_kafka(broker: AsyncBroker, client: MessagingClient) -> None:
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t")
        producer = TransactionalWire(wire, newer=True)
        await producer.init()
        await producer.write(b"aborted")
        await producer.end(commit=False)
        await producer.write(b"open")
        await wire.produce(topic, batch(b"after"))
        assert await client.receive("t") == []
        await producer.end()
        assert bodies(await client.receive("t", wait=20)) == [b"after", b"open"]


REFUSED: dict[str, tuple[Code, dict[str, Any]]] = {
    "no topic": (Code.TOPIC_NOT_FOUND, {"topic": "unknown"}),
    "a bad topic": (Code.ILLEGAL_TOPIC, {"topic": "a b"}),
    "no name": (Code.ILLEGAL_TOPIC, {"topic": ""}),
    "a bad group": (Code.ILLEGAL_CONSUMER_GROUP, {"group": "a b"}),
    "a long group": (Code.ILLEGAL_CONSUMER_GROUP, {"group": "g" * 250}),
    "no such queue": (Code.NOT_FOUND, {"queue": 4}),
    "no time": (Code.ILLEGAL_INVISIBLE_TIME, {"invisible": 0}),
    "a negative time": (Code.ILLEGAL_INVISIBLE_TIME, {"invisible": -1}),
    "a long time": (Code.ILLEGAL_INVISIBLE_TIME, {"invisible": 12 * 3600 + 1}),
    "no SQL": (Code.ILLEGAL_FILTER_EXPRESSION, {"sql": "a b c"}),
    "no tags": (Code.ILLEGAL_FILTER_EXPRESSION, {"expression": "||"}),
}


async def test_what_is_refused(client: MessagingClient) -> None:
    await client.send("orders")
    found: dict[str, int] = {}
    for name, (_, given) in REFUSED.items():
        found[name] = await client.receive_code(**{"topic": "orders", **given})
    assert found == {name: code for name, (code, _) in REFUSED.items()}
    [only] = await client.responses(
        ReceiveMessageRequest(group=client.resource("group")), ReceiveMessageResponse
    )
    assert only.status is not None
    assert only.status.code == Code.BAD_REQUEST


async def test_a_topic_is_deleted_while_a_call_waits(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send("orders")
    [message] = await client.receive("orders")
    assert await client.ack("orders", message) == Code.OK
    call = asyncio.create_task(client.receive_code("orders", wait=20))
    await waiting(broker)
    await broker.app.broker.delete_topics([broker.app.broker.topic("orders")])
    assert await call in (Code.TOPIC_NOT_FOUND, Code.NOT_FOUND)


async def test_the_broker_stops_while_calls_wait() -> None:
    async with AsyncBroker(rocketmq_grpc=ANY_PORT) as broker:
        client = client_of(broker)
        await client.send("orders")
        assert len(await client.receive("orders")) == 1
        call = asyncio.create_task(client.receive("orders", wait=60))
        await waiting(broker)
    async with client:
        assert await call == []
