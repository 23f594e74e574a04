"""Half messages: prepared by a send, ended by 37, and asked about by 39."""

import asyncio
import logging

import pytest

from posthouse.model.errors import PosthouseError
from posthouse.protocols.rocketmq.codec.codes import (
    PRODUCER_GROUP,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    RequestCode,
    ResponseCode,
)
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.message_ids import parse_message_id
from posthouse.protocols.rocketmq.codec.properties import decode_properties
from posthouse.protocols.rocketmq.codec.stored_messages import decode_stored_messages
from posthouse.records.raw import NO_HEADERS
from posthouse.testing import AsyncBroker
from tests.broker.due_checks import make_due
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of

COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0


async def prepare(client: RemotingClient, body: bytes, **properties: str) -> str:
    """The place of the half message."""
    answer = await client.send(
        "orders",
        body,
        queue=1,
        properties={
            TRANSACTION_PREPARED: "true",
            PRODUCER_GROUP: "producers",
            UNIQUE_KEY: "AB12",
            "KEYS": "4711",
            **properties,
        },
    )
    assert answer.code == 0, answer.remark
    assert answer.fields["queueId"] == "1"
    assert answer.fields["transactionId"] == "AB12"
    return str(parse_message_id(answer.fields["msgId"]).position)


def end_fields(position: str, decision: int, group: str = "producers") -> dict[str, str | int]:
    return {
        "producerGroup": group,
        "tranStateTableOffset": 0,
        "commitLogOffset": position,
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": "AB12",
        "transactionId": "AB12",
    }


async def end(client: RemotingClient, position: str, decision: int, group: str = "producers") -> Command:
    return await client.request(RequestCode.END_TRANSACTION, end_fields(position, decision, group))


def half_messages(broker: AsyncBroker) -> int:
    return len(broker.app.broker.half_messages)


async def check(broker: AsyncBroker) -> None:
    """As if the first check was due."""
    half = broker.app.broker.half_messages
    make_due(half)
    await half.check()


async def test_a_message_is_seen_when_it_is_committed(broker: AsyncBroker, client: RemotingClient) -> None:
    yes, no = await prepare(client, b"yes"), await prepare(client, b"no")
    assert (await client.pull("orders", queue=1)).code == ResponseCode.PULL_NOT_FOUND
    assert (await end(client, no, ROLL_BACK)).code == 0
    assert (await end(client, yes, COMMIT)).code == 0
    [message] = await client.messages("orders", queue=1)
    assert (message.body, message.queue, message.queue_offset) == (b"yes", 1, 0)
    properties = decode_properties(message.properties)
    assert (properties["KEYS"], properties[UNIQUE_KEY]) == ("4711", "AB12")
    assert half_messages(broker) == 0


async def test_the_end_is_oneway_in_practice(broker: AsyncBroker, client: RemotingClient) -> None:
    position = await prepare(client, b"v")
    client.oneway(RequestCode.END_TRANSACTION, end_fields(position, COMMIT))
    answer = await client.pull("orders", queue=1, wait_ms=20_000)
    assert [each.body for each in decode_stored_messages(answer.body)] == [b"v"]


async def test_an_end_that_comes_again_or_too_late(client: RemotingClient) -> None:
    position = await prepare(client, b"v")
    assert (await end(client, position, ROLL_BACK)).code == 0
    assert (await end(client, position, ROLL_BACK)).code == 0
    late = await end(client, position, COMMIT)
    assert late.code == ResponseCode.MESSAGE_ILLEGAL
    assert late.remark == "half message 0 was rolled back, or parked before"
    assert (await client.pull("orders", queue=1)).code == ResponseCode.PULL_NOT_FOUND


async def test_ends_that_are_refused(broker: AsyncBroker, client: RemotingClient) -> None:
    position = await prepare(client, b"v")
    assert (await end(client, position, COMMIT, "others")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await end(client, "5", COMMIT)).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await end(client, position, 4)).code == ResponseCode.SYSTEM_ERROR
    assert (await end(client, str(int(position) + 1), COMMIT)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await end(client, position, UNKNOWN)).code == 0
    assert half_messages(broker) == 1


async def test_a_producer_is_asked_and_decides(broker: AsyncBroker, client: RemotingClient) -> None:
    async with client_of(broker) as producer:
        await producer.beat("one", producers=["producers"])
        position = await prepare(producer, b"v", color="red")
        await check(broker)
        async with asyncio.timeout(DEADLINE):
            asked = await producer.pushed.get()
        assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
        assert asked.is_oneway
        assert asked.fields["commitLogOffset"] == position
        assert (asked.fields["transactionId"], asked.fields["topic"]) == ("AB12", "orders")
        [message] = decode_stored_messages(asked.body)
        assert (message.body, message.queue, message.topic) == (b"v", 1, "orders")
        assert decode_properties(message.properties)["color"] == "red"
        assert message.system_flags & 12 == 4
        await end(producer, asked.fields["commitLogOffset"], COMMIT)
        [seen] = await client.messages("orders", queue=1)
        assert seen.body == b"v"


async def test_another_producer_of_the_group_is_asked_when_the_first_is_gone(broker: AsyncBroker) -> None:
    async with client_of(broker) as first:
        await first.beat("one", producers=["producers"])
        await prepare(first, b"v")
    async with client_of(broker) as second:
        await second.beat("two", producers=["producers"])
        async with asyncio.timeout(DEADLINE):
            while second.pushed.empty():
                await check(broker)
                await asyncio.sleep(0.001)
        asked = second.pushed.get_nowait()
        await end(second, asked.fields["commitLogOffset"], COMMIT)
        [seen] = await second.messages("orders", queue=1)
        assert seen.body == b"v"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 6), ("60", 60), ("0", 0), ("9999999", 6), ("999999", 259_200), ("-1", 6), ("x", 6)],
)
async def test_how_long_a_producer_is_left_alone(
    broker: AsyncBroker, client: RemotingClient, text: str | None, seconds: int
) -> None:
    properties = {} if text is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}
    await prepare(client, b"v", **properties)
    half = broker.app.broker.half_messages
    [message] = (await half._messages([0])).values()
    assert message.first_check_s == seconds


async def test_a_half_message_is_not_delayed(client: RemotingClient) -> None:
    position = await prepare(client, b"v", DELAY="18")
    await end(client, position, COMMIT)
    [seen] = await client.messages("orders", queue=1)
    assert seen.body == b"v"


async def test_a_half_message_of_another_protocol(broker: AsyncBroker, client: RemotingClient) -> None:
    await client.beat("one", producers=["producers"])
    await client.send("orders", b"x")
    topic = broker.app.broker.topic("orders")
    stored: asyncio.Future[int | PosthouseError] = asyncio.get_running_loop().create_future()
    broker.app.broker.half_messages.prepare(
        topic, 0, b"k", b"v", NO_HEADERS, group="producers", stored=stored.set_result
    )
    await stored
    await check(broker)
    async with asyncio.timeout(DEADLINE):
        asked = await client.pushed.get()
    [message] = decode_stored_messages(asked.body)
    assert decode_properties(message.properties) == {"KEYS": "k"}
    await end(client, asked.fields["commitLogOffset"], COMMIT)


async def test_a_late_commit_is_told_to_operators(
    client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    position = await prepare(client, b"v")
    await end(client, position, ROLL_BACK)
    with caplog.at_level(logging.WARNING):
        client.oneway(RequestCode.END_TRANSACTION, end_fields(position, COMMIT))
        await end(client, position, ROLL_BACK)
    assert "group producers: half message 0 was rolled back, or parked before" in caplog.text
