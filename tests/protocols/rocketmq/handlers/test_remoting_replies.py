"""Requests with replies: the reply is pushed to the client that waits."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.properties import decode_properties, encode_properties
from posthouse.protocols.rocketmq.codec.routes import decode_route
from posthouse.protocols.rocketmq.remoting import connection
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of

TOPIC = "posthouse_REPLY_TOPIC"
REPLY = {"REPLY_TO_CLIENT": "asking", "CORRELATION_ID": "7", "MSG_TYPE": "reply"}


@pytest.fixture
async def asking(broker: AsyncBroker) -> AsyncIterator[RemotingClient]:
    async with client_of(broker) as connected:
        assert (await connected.beat("asking", producers=["p"])).code == 0
        yield connected


def reply(client: RemotingClient, **properties: str) -> "asyncio.Future[Command]":
    fields = client.send_fields(TOPIC, properties=REPLY | properties)
    return client.start(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"pong")


async def pushed(client: RemotingClient) -> Command:
    async with asyncio.timeout(DEADLINE):
        found = await client.pushed.get()
    assert found.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert not found.is_oneway
    return found


async def test_a_request_says_where_its_reply_goes(client: RemotingClient) -> None:
    properties = {"REPLY_TO_CLIENT": "asking", "CORRELATION_ID": "7", "TTL": "3000"}
    assert (await client.send("t", b"ping", properties=properties)).code == 0
    assert (await client.send("t", b"plain")).code == 0
    request, plain = await client.messages("t")
    cluster = decode_properties(request.properties)["CLUSTER"]
    assert f"{cluster}_REPLY_TOPIC" == TOPIC
    assert "CLUSTER" not in decode_properties(plain.properties)
    [queues] = decode_route((await client.request(105, {"topic": TOPIC})).body).queues
    assert queues.write_queues == 1


async def test_a_reply(broker: AsyncBroker, client: RemotingClient, asking: RemotingClient) -> None:
    answer = reply(client)
    found = await pushed(asking)
    assert bytes(found.body) == b"pong"
    properties = decode_properties(found.fields["properties"])
    assert properties | REPLY == properties
    assert properties["PUSH_REPLY_TIME"].isdecimal()
    assert found.fields["topic"] == TOPIC
    assert found.fields["bornTimestamp"] == "1700000000123"
    assert found.fields["storeHost"] == broker.address("rocketmq")
    assert found.fields["bornHost"].startswith("127.0.0.1:")
    assert not answer.done()
    asking.respond(found)
    got = await answer
    assert (got.code, got.fields["msgId"], got.fields["queueOffset"]) == (0, "0", "0")
    assert TOPIC not in {each.name for each in broker.app.broker.topics}


async def test_long_names_and_several_replies(client: RemotingClient, asking: RemotingClient) -> None:
    fields: dict[str, str | int] = {
        "producerGroup": "p",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "queueId": -1,
        "properties": encode_properties(REPLY),
    }
    first = client.start(RequestCode.SEND_REPLY_MESSAGE, fields, b"one")
    second = client.start(RequestCode.SEND_REPLY_MESSAGE, fields, b"two")
    got = [await pushed(asking), await pushed(asking)]
    assert [bytes(each.body) for each in got] == [b"one", b"two"]
    asking.respond(got[1])
    assert (await second).fields["queueId"] == "0"
    assert not first.done()
    asking.respond(got[0])
    assert (await first).code == 0


async def test_replies_that_are_refused(client: RemotingClient, asking: RemotingClient) -> None:
    unknown = await reply(client, REPLY_TO_CLIENT="nobody")
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert "not connected" in (unknown.remark or "")
    for topic, properties, code in (
        ("t", REPLY, ResponseCode.TOPIC_NOT_EXIST),
        (TOPIC, {}, ResponseCode.MESSAGE_ILLEGAL),
        (TOPIC, REPLY | {"x": "x" * 33_000}, ResponseCode.MESSAGE_ILLEGAL),
    ):
        fields = client.send_fields(topic, properties=properties)
        assert (await client.request(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"pong")).code == code
    assert (await client.send(TOPIC, b"stored")).code == ResponseCode.INVALID_PARAMETER
    assert asking.pushed.empty()


async def test_clients_that_do_not_take_a_reply(
    client: RemotingClient, asking: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = reply(client)
    asking.respond(await pushed(asking), ResponseCode.SYSTEM_ERROR, remark="process reply message fail")
    assert (await answer).code == ResponseCode.SYSTEM_ERROR
    answer = reply(client)
    await pushed(asking)
    asking.writer.close()
    got = await answer
    assert (got.code, "does not answer" in (got.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_client_that_is_silent(
    client: RemotingClient, asking: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.01)
    got = await reply(client)
    assert (got.code, "does not answer" in (got.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    asking.respond(await pushed(asking))  # too late
    assert (await asking.request(105, {"topic": TOPIC})).code == 0


async def test_too_many_replies_for_one_client(
    client: RemotingClient, asking: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_MOST_ASKED", 1)
    first, second = reply(client), reply(client)
    assert (await second).code == ResponseCode.SYSTEM_ERROR
    asking.respond(await pushed(asking))
    assert (await first).code == 0
    third = reply(client)
    asking.respond(await pushed(asking))
    assert (await third).code == 0


async def test_a_replier_that_disconnects(broker: AsyncBroker, asking: RemotingClient) -> None:
    async with client_of(broker) as other:
        reply(other)
        found = await pushed(asking)
    asking.respond(found)
    assert (await asking.request(105, {"topic": TOPIC})).code == 0
