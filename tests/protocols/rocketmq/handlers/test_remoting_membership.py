"""Heartbeats, members of groups, and what they are told about each other."""

import asyncio
import json
from pathlib import Path

import pytest

from posthouse.protocols.rocketmq.clients import MOST_HEARTBEAT_BYTES
from posthouse.protocols.rocketmq.codec.bodies import decode_consumer_list
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.heartbeats import (
    BROADCASTING,
    PULL,
    SQL_EXPRESSION,
    ConsumerGroup,
    Subscription,
)
from posthouse.protocols.rocketmq.codec.routes import decode_route
from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, group

ROCKETMQ = Address("127.0.0.1", 0)


async def members(client: RemotingClient, name: str) -> list[str]:
    answer = await client.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": name})
    if answer.code == ResponseCode.SYSTEM_ERROR:
        assert "no client consumes" in (answer.remark or "")
        return []
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return list(decode_consumer_list(answer.body))


async def told(client: RemotingClient) -> str:
    """The group of the next notification."""
    async with asyncio.timeout(DEADLINE):
        pushed = await client.pushed.get()
    assert pushed.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert pushed.is_oneway
    return pushed.fields["consumerGroup"]


async def test_members_join_and_leave(broker: AsyncBroker, client: RemotingClient) -> None:
    assert await members(client, "g") == []
    assert (await client.beat("one", group("g", t="*"), producers=["p"])).code == 0
    assert await told(client) == "g"
    assert await members(client, "g") == ["one"]
    async with client_of(broker) as other:
        assert (await other.beat("two", group("g", t="*"))).code == 0
        assert (await told(client), await told(other)) == ("g", "g")
        assert sorted(await members(client, "g")) == ["one", "two"]
        fields = {"clientID": "two", "producerGroup": "p", "consumerGroup": "g"}
        assert (await other.request(RequestCode.UNREGISTER_CLIENT, fields)).code == 0
        assert await told(client) == "g"
        assert await members(client, "g") == ["one"]
        assert (await other.request(RequestCode.UNREGISTER_CLIENT, fields)).code == 0
        assert (await other.beat("two", group("g", t="*"))).code == 0
        assert await told(client) == "g"
    assert await told(client) == "g"  # its connection is lost
    assert await members(client, "g") == ["one"]
    assert client.pushed.empty()


async def test_a_heartbeat_that_repeats_itself_tells_nobody(client: RemotingClient) -> None:
    for _ in range(3):
        assert (await client.beat("one", group("g", t="*"))).code == 0
    assert await told(client) == "g"
    assert (await client.beat("one", group("g", t="red"))).code == 0  # each client has its own filter
    await members(client, "g")
    assert client.pushed.empty()
    assert (await client.beat("one", group("g", t="red", u="*"))).code == 0
    assert await told(client) == "g"
    assert (await client.beat("one", group("h", t="*"))).code == 0
    assert await told(client) == "h"
    assert await members(client, "g") == []


async def test_several_clients_of_one_connection(client: RemotingClient) -> None:
    assert (await client.beat("one", group("g", t="*"))).code == 0
    assert (await client.beat("two", group("g", t="*"))).code == 0
    assert await members(client, "g") == ["one", "two"]
    fields = {"clientID": "one", "consumerGroup": "g"}
    assert (await client.request(RequestCode.UNREGISTER_CLIENT, fields)).code == 0
    assert await members(client, "g") == ["two"]


async def test_a_client_that_has_connected_again(broker: AsyncBroker, client: RemotingClient) -> None:
    async with client_of(broker) as before:
        assert (await before.beat("one", group("g", t="*"))).code == 0
        assert (await client.beat("one", group("g", t="*"))).code == 0
        assert await members(client, "g") == ["one"]
    assert [await told(client), await told(client)] == ["g", "g"]
    assert await members(client, "g") == ["one"]


async def test_the_topic_of_retries(broker: AsyncBroker, client: RemotingClient) -> None:
    route = {"topic": "%RETRY%g"}
    # A client asks before its first heartbeat, and not again for 30 s. Asking creates nothing.
    before = decode_route((await client.request(105, route)).body)
    assert not list(broker.app.broker.topics)
    assert (await client.beat("one", group("g", t="*"))).code == 0
    after = decode_route((await client.request(105, route)).body)
    assert before == after
    [queues] = after.queues
    assert queues.read_queues == queues.write_queues == 1
    assert [each.name for each in broker.app.broker.topics] == [".RETRY.g"]
    pulling = ConsumerGroup(name="pulling", subscriptions=(), consume_type=PULL)
    broadcast = ConsumerGroup(name="broadcast", subscriptions=(), message_model=BROADCASTING)
    assert (await client.beat("one", group("g", t="*"), pulling, broadcast)).code == 0
    assert [each.name for each in broker.app.broker.topics] == [".RETRY.g"]


async def test_a_member_that_is_told_to_look_again(tmp_path: Path) -> None:
    """Then it asks for its offsets, also of the topic of retries, and if that fails, not again for 20 s."""
    async with AsyncBroker(data=tmp_path, rocketmq=ROCKETMQ) as broker, client_of(broker) as client:
        for number in range(5):
            name = f"g{number}"
            joining = asyncio.create_task(client.beat("one", group(name, t="*")))
            while await told(client) != name:
                pass  # of the group that it has left
            fields: dict[str, str | int] = {"consumerGroup": name, "topic": f"%RETRY%{name}", "queueId": 0}
            answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert answer.fields["offset"] == "0"
            assert (await joining).code == 0


@pytest.mark.parametrize("name", ["", "g" * 243, "a b", "a|b", "ä"])
async def test_retries_of_groups_that_cannot_be(client: RemotingClient, name: str) -> None:
    answer = await client.request(105, {"topic": f"%RETRY%{name}"})
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_long_names_of_groups(client: RemotingClient) -> None:
    name = "g" * 242
    assert (await client.beat("one", group(name, t="*"))).code == 0
    assert (await client.request(105, {"topic": f"%RETRY%{name}"})).code == 0
    assert await members(client, name) == ["one"]


@pytest.mark.parametrize("name", ["", "g" * 243, "a b", "a|b", "ä"])
async def test_names_that_no_group_can_have(client: RemotingClient, name: str) -> None:
    assert (await client.beat("one", group(name, t="*"))).code == ResponseCode.INVALID_PARAMETER
    fields = {"consumerGroup": name}
    assert (await client.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)).code == 29
    assert client.pushed.empty()


async def test_a_bad_filter_changes_nothing(client: RemotingClient) -> None:
    bad = Subscription(topic="t", expression="a =", expression_type=SQL_EXPRESSION)
    both = ConsumerGroup(name="h", subscriptions=(bad,))
    answer = await client.beat("one", group("g", t="*"), both)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await members(client, "g") == []
    assert (await client.beat("one", group("g", t="*"))).code == 0
    assert (await client.beat("one", both)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await members(client, "g") == ["one"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"{}", b'{"clientID":1}', b'{"clientID":"a","consumerDataSet":7}']
)
async def test_bodies_that_are_no_heartbeat(client: RemotingClient, body: bytes) -> None:
    answer = await client.request(RequestCode.HEART_BEAT, None, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_thousands_of_subscriptions(client: RemotingClient) -> None:
    many = group("g", **{f"topic-{number}": "a || b" for number in range(5000)})
    assert (await client.beat("one", many)).code == 0
    started = asyncio.get_running_loop().time()
    assert (await client.beat("one", many)).code == 0
    assert asyncio.get_running_loop().time() - started < 5


async def test_what_one_connection_may_have_remembered(broker: AsyncBroker, client: RemotingClient) -> None:
    def body(name: str, size: int) -> bytes:
        return json.dumps({"clientID": name, "x": "x" * size}).encode()

    half = MOST_HEARTBEAT_BYTES // 2
    assert (await client.request(34, None, body("one", half))).code == 0
    assert (await client.request(34, None, body("two", half - 1000))).code == 0
    assert (await client.request(34, None, body("two", half - 1000))).code == 0
    answer = await client.request(34, None, body("three", 2000))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "together" in (answer.remark or "")
    assert (await client.request(34, None, body("one", 10))).code == 0
    assert (await client.request(34, None, body("three", 2000))).code == 0
    async with client_of(broker) as other:
        assert (await other.request(34, None, body("four", half))).code == 0


async def test_a_check_of_a_filter(client: RemotingClient) -> None:
    async def check(**data: object) -> int:
        body = {"clientId": "one", "group": "g", "subscriptionData": data}
        return (await client.request(RequestCode.CHECK_CLIENT_CONFIG, None, json.dumps(body).encode())).code

    assert await check(topic="t", subString="a > 5", expressionType="SQL92") == 0
    assert await check(topic="t", subString="a || b", expressionType="TAG") == 0
    assert await check(topic="t") == 0
    assert await check(subString="a >", expressionType="SQL92") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await check(subString="a", expressionType="XPATH") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await check(subString=5) == ResponseCode.MESSAGE_ILLEGAL
    answer = await client.request(RequestCode.CHECK_CLIENT_CONFIG, None, b"{}")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
