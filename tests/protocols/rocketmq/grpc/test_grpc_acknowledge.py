"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue, and which receipts are good."""

from pathlib import Path

import pytest

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Message
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
)
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT, StillBroker, client_of, configure
from tests.protocols.rocketmq.grpc.messaging_client import (
    MessagingClient,
    attempt,
    bodies,
    receipt,
    system,
)


async def one(client: MessagingClient) -> Message:
    """Received: body v, of a topic that has nothing else."""
    await client.send("orders", b"v")
    [message] = await client.receive("orders")
    return message


async def test_acknowledged_messages_do_not_come_again(still: StillBroker) -> None:
    async with client_of(still) as client:
        await client.send("orders", b"a", b"b", b"c")
        messages = await client.receive("orders")
        assert await client.ack("orders", *messages[:2]) == Code.OK
        await still.advance(31)
        [again] = await client.receive("orders")
        assert (again.body, attempt(again)) == (messages[2].body, 2)


async def test_each_entry_has_its_result(client: MessagingClient) -> None:
    await client.send("orders", b"a", b"b")
    first, second = await client.receive("orders")
    answer = await client.acknowledge("orders", [first, "garbage", second])
    assert answer.status is not None
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [(each.receipt_handle, each.status and each.status.code) for each in answer.entries] == [
        (receipt(first), Code.OK),
        ("garbage", Code.INVALID_RECEIPT_HANDLE),
        (receipt(second), Code.OK),
    ]
    assert {each.message_id for each in answer.entries} == {"id"}
    assert await client.ack("orders", first) == Code.INVALID_RECEIPT_HANDLE


async def test_the_same_receipt_twice_in_a_request(client: MessagingClient) -> None:
    message = await one(client)
    assert await client.ack("orders", message, message) == Code.OK
    assert await client.receive("orders") == []


async def test_an_expired_receipt(still: StillBroker) -> None:
    """It is no good from the moment that the message may be given to somebody else."""
    async with client_of(still) as client, client_of(still, "other") as other:
        message = await one(client)
        await still.advance(30.1)
        assert await client.ack("orders", message) == Code.INVALID_RECEIPT_HANDLE
        [again] = await other.receive("orders")
        assert await client.ack("orders", message) == Code.INVALID_RECEIPT_HANDLE
        answer = await client.change("orders", message, 10)
        assert answer.status is not None
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
        assert await client.forward("orders", message) == Code.INVALID_RECEIPT_HANDLE
        assert await other.ack("orders", again) == Code.OK


async def test_an_earlier_receipt_of_the_same_consumer(client: MessagingClient) -> None:
    message = await one(client)
    await client.changed("orders", message, 0)
    [again] = await client.receive("orders")
    assert await client.ack("orders", message) == Code.INVALID_RECEIPT_HANDLE
    assert await client.ack("orders", again) == Code.OK


async def test_receipts_of_others(broker: AsyncBroker, client: MessagingClient) -> None:
    message = await one(client)
    await client.send("others", b"v")
    [other] = await client.receive("others")
    assert await client.ack("orders", message, group="another") == Code.INVALID_RECEIPT_HANDLE
    if system(other).queue_id != system(message).queue_id:
        assert await client.ack("others", message) == Code.INVALID_RECEIPT_HANDLE
    assert await client.ack("unknown", message) == Code.TOPIC_NOT_FOUND
    assert await client.ack("orders", message, group="a b") == Code.ILLEGAL_CONSUMER_GROUP
    async with client_of(broker, "another client") as restarted:
        assert await restarted.ack("orders", message) == Code.OK, "the client has another id now"


GARBLED = [
    "",
    "x",
    "1.0.0.1",
    "1.0.0.1.",
    "2.0.0.1.client",
    "1.-1.0.1.client",
    "1.0.1e3.1.client",
    "1.0.²3.1.client",
    "1.0.0.1.somebody",
    "1.0.0.1.%FF%00",
    "1.99.0.1.client",
    f"1.0.{1 << 63}.1.client",
    f"1.{'9' * 30}.0.1.client",
    "1.0.0.1." + "c" * 5000,
    "\0" * 100,
]


async def test_garbled_receipts(client: MessagingClient) -> None:
    """Whatever is wrong with them: with another code clients try for ever."""
    message = await one(client)
    for garbled in GARBLED:
        assert await client.ack("orders", garbled) == Code.INVALID_RECEIPT_HANDLE, garbled
        assert await client.forward("orders", garbled) == Code.INVALID_RECEIPT_HANDLE, garbled
        answer = await client.change("orders", garbled, 10)
        assert answer.status is not None
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE, garbled
    assert await client.ack("orders", message) == Code.OK


@pytest.mark.parametrize("count", [0, 1025])
async def test_the_number_of_entries(client: MessagingClient, count: int) -> None:
    message = await one(client)
    answer = await client.acknowledge("orders", [message] * count)
    assert answer.status is not None
    assert (answer.status.code, answer.entries) == (Code.BAD_REQUEST, ())


async def test_requests_without_names(client: MessagingClient) -> None:
    await client.send("orders")
    assert (
        await client.code(AckMessageRequest(topic=client.resource("orders"))) == Code.ILLEGAL_CONSUMER_GROUP
    )
    assert await client.code(AckMessageRequest(group=client.resource("g"))) == Code.ILLEGAL_TOPIC


# Change of the invisible duration


async def test_a_message_is_given_back(broker: AsyncBroker, client: MessagingClient) -> None:
    message = await one(client)
    await client.changed("orders", message, 0)
    async with client_of(broker, "other") as other:
        [again] = await other.receive("orders")
        assert (again.body, attempt(again)) == (b"v", 2)


async def test_a_message_is_kept_for_longer(still: StillBroker) -> None:
    async with client_of(still) as client:
        message = await one(client)
        renewed = await client.changed("orders", message, 100)
        await still.advance(99)
        assert await client.receive("orders") == []
        renewed = await client.changed("orders", renewed, 5)
        await still.advance(5.1)
        [again] = await client.receive("orders")
        assert attempt(again) == 2
        assert await client.ack("orders", renewed) == Code.INVALID_RECEIPT_HANDLE
        renewed = await client.changed("orders", again, 100)
        assert await client.ack("orders", renewed) == Code.OK
        await still.advance(101)
        assert await client.receive("orders") == []


@pytest.mark.parametrize("seconds", [-1, 12 * 3600 + 1, 1 << 40])
async def test_durations_that_are_refused(client: MessagingClient, seconds: int) -> None:
    message = await one(client)
    answer = await client.change("orders", message, seconds)
    assert answer.status is not None
    assert answer.status.code == Code.ILLEGAL_INVISIBLE_TIME
    assert await client.ack("orders", message) == Code.OK


async def test_no_duration(client: MessagingClient) -> None:
    message = await one(client)
    request = ChangeInvisibleDurationRequest(
        group=client.resource("group"), topic=client.resource("orders"), receipt_handle=receipt(message)
    )
    assert await client.code(request) == Code.ILLEGAL_INVISIBLE_TIME


# Dead letters


async def test_a_message_that_is_never_acknowledged(client: MessagingClient) -> None:
    await client.send("orders", b"v", tag="red", keys=("k",), properties={"a": "b"}, message_id="ID")
    for number in range(1, 18):
        [message] = await client.receive("orders")
        assert attempt(message) == number
        await client.changed("orders", message, 0)
    assert await client.receive("orders") == []
    [dead] = await client.receive("%DLQ%group", "undertakers")
    found = system(dead)
    assert (dead.body, found.tag, found.keys, found.message_id) == (b"v", "red", ("k",), "ID")
    assert dead.user_properties.items() >= {"a": "b"}.items()
    assert attempt(dead) == 1


async def test_a_group_with_fewer_attempts(broker: AsyncBroker, client: MessagingClient) -> None:
    """Also if a call may take only one message, and finds a dead one first."""
    await configure(broker, "group", share_delivery_count_limit="2")
    await client.send("orders", b"dead", message_group="one queue")
    for _ in range(2):
        [message] = await client.receive("orders")
        await client.changed("orders", message, 0)
    await client.send("orders", b"alive", message_group="one queue")
    [message] = await client.receive("orders", most=1, wait=20)
    assert (message.body, attempt(message)) == (b"alive", 1)
    assert bodies(await client.receive("%DLQ%group", "undertakers")) == [b"dead"]


async def test_forward(client: MessagingClient) -> None:
    message = await one(client)
    assert await client.forward("orders", message) == Code.OK
    assert bodies(await client.receive("%DLQ%group", "undertakers")) == [b"v"]
    assert await client.ack("orders", message) == Code.INVALID_RECEIPT_HANDLE
    assert await client.forward("orders", message) == Code.INVALID_RECEIPT_HANDLE


async def test_receipts_from_before_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path, rocketmq_grpc=ANY_PORT) as broker, client_of(broker) as client:
        await client.send("orders", b"a", b"b")
        first, second = await client.receive("orders")
        assert await client.ack("orders", first) == Code.OK
    async with AsyncBroker(data=tmp_path, rocketmq_grpc=ANY_PORT) as broker, client_of(broker) as client:
        assert await client.ack("orders", second) == Code.INVALID_RECEIPT_HANDLE
        [again] = await client.receive("orders")
        assert again.body == second.body
        assert await client.ack("orders", again) == Code.OK
