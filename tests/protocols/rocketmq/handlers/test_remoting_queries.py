"""Messages by key, by the producer's id, and by the broker's."""

import asyncio
from typing import Any

import pytest

from posthouse.protocols.rocketmq.codec.codes import UNIQUE_KEY_QUERY, RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.message_ids import parse_message_id
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage, decode_stored_messages
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.conftest import ROCKETMQ
from tests.protocols.rocketmq.handlers.test_remoting_pull import connections_of
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of

LATER = (1 << 63) - 1


async def ask(client: RemotingClient, topic: str, key: str, **others: Any) -> Command:
    fields = {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": LATER, **others}
    return await client.request(RequestCode.QUERY_MESSAGE, fields)


async def found(client: RemotingClient, topic: str, key: str, **others: Any) -> list[StoredMessage]:
    answer = await ask(client, topic, key, **others)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert int(answer.fields["indexLastUpdateTimestamp"]) > 0
    return decode_stored_messages(answer.body)


@pytest.mark.parametrize("is_indexed", [False, True])
async def test_messages_are_found_by_each_of_their_keys(
    broker: AsyncBroker, client: RemotingClient, is_indexed: bool
) -> None:
    for number, keys in enumerate(["red", "red green", "blue"]):
        properties = {"KEYS": keys, "UNIQ_KEY": f"0A{number:030}"}
        await client.send("t", b"%d" % number, queue=number % 2, properties=properties)
    if is_indexed:
        await broker.app.broker.key_index.catch_up()
        assert broker.app.broker.key_index.indexed_records == 3, "without a setting"
    assert {each.body for each in await found(client, "t", "red")} == {b"0", b"1"}
    [message] = await found(client, "t", "green")
    assert (message.topic, message.queue, message.body) == ("t", 1, b"1")
    assert "KEYS\x01red green\x02" in message.properties
    answer = await ask(client, "t", "yellow")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_unique_key_is_no_other_key(client: RemotingClient) -> None:
    await client.send("t", b"x", properties={"KEYS": "red", "UNIQ_KEY": "0A1B"})
    [message] = await found(client, "t", "0A1B", **{UNIQUE_KEY_QUERY: "true"})
    assert message.body == b"x"
    assert (await ask(client, "t", "0A1B")).code == ResponseCode.QUERY_NOT_FOUND
    assert (await ask(client, "t", "red", **{UNIQUE_KEY_QUERY: "true"})).code == ResponseCode.QUERY_NOT_FOUND
    assert [each.body for each in await found(client, "t", "0A1B", indexType="U")] == [b"x"]


async def test_time_and_number_limit_what_is_found(client: RemotingClient) -> None:
    for number in range(5):
        await client.send("t", b"%d" % number, properties={"KEYS": "red"})
    assert [each.body for each in await found(client, "t", "red", maxNum=2)] == [b"4", b"3"], "newest first"
    [newest, *_] = await found(client, "t", "red")
    early = await ask(client, "t", "red", endTimestamp=newest.stored_at - 3_600_000)
    assert early.code == ResponseCode.QUERY_NOT_FOUND
    assert len(await found(client, "t", "red", beginTimestamp=newest.stored_at - 3_600_000)) == 5


@pytest.mark.parametrize(
    "fields", [{"key": "red"}, {"topic": "t"}, {"topic": "t", "key": "red", "maxNum": "many"}]
)
async def test_fields_that_are_missing_or_wrong_are_named(
    client: RemotingClient, fields: dict[str, str]
) -> None:
    await client.send("t", b"x")
    answer = await client.request(RequestCode.QUERY_MESSAGE, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "the field" in (answer.remark or "")


async def test_an_unknown_topic_is_not_found(client: RemotingClient) -> None:
    assert (await ask(client, "none", "red")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_message_is_found_by_its_offset_id(client: RemotingClient) -> None:
    await client.send("t", b"first", queue=1)
    sent = await client.send("t", b"second", queue=1, properties={"KEYS": "red"})
    position = parse_message_id(sent.fields["msgId"]).position
    answer = await client.request(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "t", "offset": position})
    [message] = decode_stored_messages(answer.body)
    assert (message.body, message.queue, message.queue_offset) == (b"second", 1, 1)
    assert message.message_id == sent.fields["msgId"]


@pytest.mark.parametrize("position", [5, 1 << 60, 1 << 62, -1, 1 << 63])
async def test_no_message_is_at_another_position(client: RemotingClient, position: int) -> None:
    await client.send("t", b"x")
    answer = await client.request(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "t", "offset": position})
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)
    assert answer.remark and not answer.body


async def test_clients_before_5_0_are_told_why_they_find_nothing(client: RemotingClient) -> None:
    answer = await client.request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0})
    assert answer.code == ResponseCode.SYSTEM_ERROR and "since 5.0" in (answer.remark or "")


async def test_a_client_that_searches_and_does_not_read() -> None:
    """Its searches find messages one after the other, and only while it takes what it is sent."""
    async with AsyncBroker(rocketmq=ROCKETMQ, connection_buffer_bytes=512 * 1024) as broker:
        async with client_of(broker) as sender:
            for _ in range(5):
                await sender.send("t", bytes(200_000), properties={"KEYS": "red"})
        client = await RemotingClient.open(broker.address("rocketmq"))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        searches = [asyncio.ensure_future(found(client, "t", "red")) for _ in range(40)]
        index = broker.app.broker.key_index
        async with asyncio.timeout(DEADLINE):
            while not (made := connections_of(broker)) or not made[0]._flow.outbox.is_congested:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.2)
        assert made[0]._flow.outbox.unsent < 8 * 1024 * 1024 and index.searches < 20
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(DEADLINE):
            assert {len(await each) for each in searches} == {5}
        await client.close()
