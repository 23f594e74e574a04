"""Recalls of delayed messages, by the handle in the answer to the send."""

import asyncio
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from posthouse.protocols.rocketmq.codec.codes import TIMER_DELAY_MS, TIMER_DELAY_SEC, UNIQUE_KEY, RequestCode
from posthouse.protocols.rocketmq.codec.codes import ResponseCode as Code
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.conftest import ROCKETMQ
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of
from tests.protocols.rocketmq.signed_client import signed_client_of


async def delayed(client: RemotingClient, body: bytes, seconds: int = 3600, topic: str = "t") -> str:
    """The handle."""
    properties = {TIMER_DELAY_SEC: str(seconds), UNIQUE_KEY: "AB12"}
    answer = await client.send(topic, body, properties=properties, d=1)
    assert answer.code == 0, answer.remark
    return answer.fields["recallHandle"]


async def recall(client: RemotingClient, handle: str, topic: str = "t") -> Command:
    fields = {"producerGroup": "producers", "topic": topic, "recallHandle": handle, "bname": "posthouse"}
    return await client.request(RequestCode.RECALL_MESSAGE, fields)


async def all_fired(broker: AsyncBroker) -> None:
    async with asyncio.timeout(DEADLINE):
        while broker.app.broker.scheduled_messages:
            await asyncio.sleep(0.01)


async def test_a_message_is_recalled(broker: AsyncBroker, client: RemotingClient) -> None:
    recalled, kept = await delayed(client, b"recalled", 1), await delayed(client, b"kept", 1)
    assert recalled != kept
    for _ in range(2):
        answer = await recall(client, recalled)
        assert (answer.code, answer.fields) == (0, {"msgId": "AB12"})
    await all_fired(broker)
    assert [each.body for each in await client.messages("t")] == [b"kept"]
    for handle in (recalled, kept):
        late = await recall(client, handle)
        assert late.code == Code.ILLEGAL_OPERATION
        assert "it cannot be recalled" in (late.remark or "")


async def test_messages_that_are_not_delayed_have_no_handle(client: RemotingClient) -> None:
    for properties in ({}, {TIMER_DELAY_MS: "0"}):
        assert "recallHandle" not in (await client.send("t", b"v", properties=properties)).fields


@pytest.mark.parametrize("handle", ["", "x", "ä", urlsafe_b64encode(b"v1 t posthouse 1 id").decode()])
async def test_handles_of_others(client: RemotingClient, handle: str) -> None:
    await client.send("t", b"v")
    answer = await recall(client, handle)
    assert answer.code == Code.ILLEGAL_OPERATION
    assert "no recall handle of this broker" in (answer.remark or "")


async def test_a_handle_is_for_its_topic(broker: AsyncBroker, client: RemotingClient) -> None:
    handle = await delayed(client, b"v", topic="%t")
    answer = await recall(client, handle, "other")
    assert answer.code == Code.ILLEGAL_OPERATION
    assert broker.app.broker.scheduled_messages == 1
    assert (await recall(client, handle, ".t")).code == 0, "as the log writes it"


async def test_requests_without_their_fields(client: RemotingClient) -> None:
    for fields in ({"topic": "t"}, {"recallHandle": "x"}):
        assert (await client.request(RequestCode.RECALL_MESSAGE, fields)).code == Code.SYSTEM_ERROR
    assert (await recall(client, "x", "no topic!")).code == Code.INVALID_PARAMETER


async def test_a_restart(tmp_path: Path) -> None:
    users = {"ann": "ann's password", "ben": "ben's password"}
    async with AsyncBroker(rocketmq=ROCKETMQ, data=tmp_path, users=users) as broker:
        for name in users:
            await broker.app.broker.access.access_keys.add(name, name, secret=users[name])
        async with signed_client_of(broker, "ann", users["ann"]) as client:
            one, other = await delayed(client, b"1"), await delayed(client, b"2")
            assert (await recall(client, one)).code == 0
    async with AsyncBroker(rocketmq=ROCKETMQ, data=tmp_path, users=users) as broker:
        async with signed_client_of(broker, "ben", users["ben"]) as client:
            answer = await recall(client, other)
            assert answer.code == Code.NO_PERMISSION
            assert "no permission to recall messages for topic 't'" in (answer.remark or "")
        async with signed_client_of(broker, "ann", users["ann"]) as client:
            assert (await recall(client, other)).code == 0


async def test_many_at_once(broker: AsyncBroker) -> None:
    async with client_of(broker) as client:
        handles = [await delayed(client, b"%d" % number) for number in range(200)]
        answers = await asyncio.gather(*(recall(client, each) for each in handles))
        assert {each.code for each in answers} == {0}
        assert broker.app.broker.scheduled_messages == 200
