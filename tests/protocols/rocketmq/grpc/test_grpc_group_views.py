"""A group of gRPC consumers, as operators see it: over HTTP, with Kafka's requests, with RocketMQ's own tool.
While it has consumers it can be reset, and not deleted."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from posthouse.broker.topics import NewTopic
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.rocketmq.codec.bodies import decode_offset_table
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.lenient_json import decode_json
from posthouse.protocols.rocketmq.codec.routes import decode_topic_list
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire
from tests.protocols.rocketmq.grpc.conftest import client_of, configure
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, attempt, bodies
from tests.protocols.rocketmq.remoting_client import RemotingClient
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP


@pytest.fixture
async def orders(broker: AsyncBroker, client: MessagingClient) -> None:
    """One queue with five messages, of which the client holds 1, 2 and 3, and has acknowledged 0 and 2."""
    await broker.app.broker.create_topics([NewTopic(name="orders", partitions=1)])
    for number in range(5):
        await client.send("orders", b"%d" % number)
    held = await client.receive("orders", most=4, invisible=600)
    assert bodies(held) == [b"0", b"1", b"2", b"3"]
    assert await client.ack("orders", held[0], held[2]) == Code.OK


@pytest.fixture
async def tool(broker: AsyncBroker) -> AsyncIterator[RemotingClient]:
    """As mqadmin is one."""
    async with remoting_client_of(broker) as connected:
        yield connected


@pytest.fixture
async def http(broker: AsyncBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{broker.address('admin')}", timeout=DEADLINE) as connected:
        yield connected


async def progress(tool: RemotingClient, **fields: str) -> dict[str, Any]:
    """Of the only queue; nothing if the answer has no queue."""
    answer = await tool.request(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "group", **fields})
    assert answer.code == 0, answer.remark
    table = decode_json(answer.body)
    assert isinstance(table, dict)
    offsets = table["offsetTable"]
    assert isinstance(offsets, dict)
    found: dict[str, Any] = {}
    for value in offsets.values():
        assert isinstance(value, dict)
        found = value
    return found


# RocketMQ's own tool


async def test_progress(tool: RemotingClient, orders: None) -> None:
    """Offsets 0 and 2 are settled, 1 and 3 are leased: three are left, of which consumers have two."""
    for fields in ({}, {"topic": "orders"}):
        found = await progress(tool, **fields)
        assert found.pop("lastTimestamp") > 1_700_000_000_000
        assert found == {"brokerOffset": 5, "consumerOffset": 2, "pullOffset": 4}


async def test_progress_of_a_topic_that_is_not_read_yet(
    broker: AsyncBroker, client: MessagingClient, tool: RemotingClient, orders: None
) -> None:
    await broker.app.broker.create_topics([NewTopic(name="other", partitions=1)])
    found = await progress(tool, topic="other")
    assert found == {"brokerOffset": 0, "consumerOffset": 0, "pullOffset": 0, "lastTimestamp": 0}


async def test_connections(
    broker: AsyncBroker, client: MessagingClient, tool: RemotingClient, orders: None
) -> None:
    list_of = RequestCode.GET_CONSUMER_CONNECTION_LIST
    async with client_of(broker, "other") as other:
        other.metadata = (*other.metadata, ("x-mq-language", "GOLANG"), ("x-mq-client-version", "5.1.4"))
        await other.receive("orders", expression="red || green")
        found = json.loads(bytes((await tool.request(list_of, {"consumerGroup": "group"})).body))
        clients = {each["clientId"]: each for each in found["connectionSet"]}
        assert clients.keys() == {"client", "other"}
        assert (clients["other"]["language"], clients["other"]["version"]) == ("GO", 213 + 200 + 20 + 8)
        assert clients["client"]["language"] == "OTHER"
        assert clients["other"]["clientAddr"].startswith("127.0.0.1:")
        assert found["subscriptionTable"].keys() == {"orders"}
        assert (found["messageModel"], found["consumeType"]) == ("CLUSTERING", "CONSUME_PASSIVELY")
        await client.terminate("group")
        found = json.loads(bytes((await tool.request(list_of, {"consumerGroup": "group"})).body))
        assert found["subscriptionTable"]["orders"]["subString"] == "red || green"
        asked = await tool.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "group", "clientId": "other"}
        )
        assert asked.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "another protocol" in (asked.remark or "")
        fields = {"group": "group", "topic": "orders"}
        answer = await tool.request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, fields)
        assert json.loads(bytes(answer.body))["subscriptionData"]["subString"] == "red || green"
        await other.terminate("group")
    gone = await tool.request(list_of, {"consumerGroup": "group"})
    assert gone.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_topics_and_groups(tool: RemotingClient, orders: None) -> None:
    answer = await tool.request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert json.loads(bytes(answer.body)) == {"groupList": ["group"]}
    answer = await tool.request(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "group"})
    assert decode_topic_list(answer.body) == ("orders",)


async def test_a_group_that_only_has_a_consumer_so_far(
    client: MessagingClient, tool: RemotingClient, http: httpx.AsyncClient
) -> None:
    await client.beat("group")
    found = await tool.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "group"})
    assert found.code == 0
    assert await progress(tool) == {}
    shown = (await http.get("/v1/groups/group")).json()
    assert (shown["kind"], shown["state"], shown["members_total"]) == ("share", "stable", 1)
    assert [each["name"] for each in (await http.get("/v1/groups")).json()["items"]] == ["group"]
    assert (await http.delete("/v1/groups/group")).status_code == 409


async def test_it_is_deleted_with_its_progress(
    broker: AsyncBroker, client: MessagingClient, tool: RemotingClient, orders: None
) -> None:
    refused = await tool.request(DELETE, {"groupName": "group", "cleanOffset": "true"})
    assert refused.code == ResponseCode.SYSTEM_ERROR and "1 clients consume" in (refused.remark or "")
    await client.terminate("group")
    kept = await tool.request(DELETE, {"groupName": "group"})
    assert kept.code == ResponseCode.SYSTEM_ERROR and "-r true" in (kept.remark or "")
    assert GroupId("group") in broker.app.broker.subscriptions
    assert (await tool.request(DELETE, {"groupName": "group", "cleanOffset": "true"})).code == 0
    assert GroupId("group") not in broker.app.broker.subscriptions
    gone = await tool.request(DELETE, {"groupName": "group", "cleanOffset": "true"})
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# Resets while consumers run


async def reset(tool: RemotingClient, **fields: str | int) -> int:
    """To a time; returns the offset."""
    answer = await tool.request(RESET, {"group": "group", "topic": "orders", "isForce": "true", **fields})
    assert answer.code == 0, answer.remark
    [offset] = decode_offset_table(answer.body).values()
    return offset


async def test_by_time(client: MessagingClient, tool: RemotingClient, orders: None) -> None:
    assert await reset(tool, timestamp=0) == 0
    assert (await progress(tool))["consumerOffset"] == 0
    again = await client.receive("orders", invisible=600)
    assert bodies(again) == [b"0", b"1", b"2", b"3", b"4"]
    assert {attempt(each) for each in again} == {1}


async def test_to_the_end(client: MessagingClient, tool: RemotingClient, orders: None) -> None:
    assert await reset(tool, timestamp=-1) == 5
    assert (await progress(tool))["consumerOffset"] == 5
    assert await client.receive("orders") == []
    await client.send("orders", b"new")
    assert bodies(await client.receive("orders")) == [b"new"]


async def test_only_back(client: MessagingClient, tool: RemotingClient, orders: None) -> None:
    """The first message that is not settled is where the group is."""
    assert await reset(tool, timestamp=-1, isForce="false") == 1
    assert await reset(tool, queueId=0, offset=3, isForce="false") == 1
    assert (await progress(tool))["pullOffset"] == 4, "nothing was moved"
    assert await reset(tool, queueId=0, offset=0, isForce="false") == 0


async def test_a_consumer_that_waits_goes_on_at_once(
    client: MessagingClient, tool: RemotingClient, orders: None
) -> None:
    held = await client.receive("orders", invisible=600)
    assert bodies(held) == [b"4"]
    async with asyncio.timeout(DEADLINE):
        waiting = asyncio.create_task(client.receive("orders", wait=25))
        await client.beat("group")  # the call before it has come to the broker
        await reset(tool, timestamp=0)
        assert bodies(await waiting) == [b"0", b"1", b"2", b"3", b"4"]


async def test_late_acknowledgements_do_no_harm(
    broker: AsyncBroker, client: MessagingClient, tool: RemotingClient, orders: None
) -> None:
    """Not even to what the same consumer has got again, as often as before."""
    [late] = await client.receive("orders", invisible=600)
    await reset(tool, queueId=0, offset=4)
    assert await client.ack("orders", late) == Code.INVALID_RECEIPT_HANDLE, "nobody holds it"
    [again] = await client.receive("orders", invisible=600)
    assert (again.body, attempt(again)) == (late.body, attempt(late)) == (b"4", 1)
    assert await client.ack("orders", late) == Code.INVALID_RECEIPT_HANDLE
    change = await client.change("orders", late, 0)
    assert change.status is not None and change.status.code == Code.INVALID_RECEIPT_HANDLE
    assert await client.forward("orders", late) == Code.INVALID_RECEIPT_HANDLE
    found = await progress(tool)
    assert (found["consumerOffset"], found["pullOffset"]) == (4, 5), "it is still held"
    assert await client.ack("orders", again) == Code.OK
    assert (await progress(tool))["consumerOffset"] == 5


async def test_messages_of_a_group_stay_in_order(
    broker: AsyncBroker, client: MessagingClient, tool: RemotingClient
) -> None:
    await configure(broker, "group", rocketmq_fifo_enable="true")
    await broker.app.broker.create_topics([NewTopic(name="orders", partitions=1)])
    for number in range(3):
        await client.send("orders", b"%d" % number, message_group="ann")
    for expected in (b"0", b"1"):
        [message] = await client.receive("orders", most=1, invisible=600)
        assert message.body == expected
        if expected == b"0":
            assert await client.ack("orders", message) == Code.OK
    await reset(tool, timestamp=0)
    for expected in (b"0", b"1", b"2"):
        [message] = await client.receive("orders", most=1, invisible=600)
        assert message.body == expected
        assert await client.receive("orders") == [], "the others wait for it"
        assert await client.ack("orders", message) == Code.OK


# Over HTTP


async def test_members_over_http(client: MessagingClient, http: httpx.AsyncClient, orders: None) -> None:
    [listed] = (await http.get("/v1/groups")).json()["items"]
    assert listed == {
        "name": "group",
        "kind": "share",
        "state": "stable",
        "members": 1,
        "partitions": 1,
        "lag": 3,
    }
    shown = (await http.get("/v1/groups/group")).json()
    assert (shown["state"], shown["members_total"], shown["lag"]) == ("stable", 1, 3)
    assert shown["members"] == [
        {
            "id": "client",
            "instance": None,
            "client": "client",
            "host": "/127.0.0.1",
            "topics": ["orders"],
            "partitions": 0,
        }
    ]
    metrics = (await http.get("/metrics")).text
    assert 'posthouse_group_members{group="group"} 1' in metrics
    assert 'posthouse_group_lag_records{group="group",topic="orders"} 3' in metrics
    assert (await http.get("/v1/overview")).json()["groups"] == 1


async def test_it_is_not_deleted_over_http(
    broker: AsyncBroker, client: MessagingClient, http: httpx.AsyncClient, orders: None
) -> None:
    refused = await http.delete("/v1/groups/group")
    assert refused.status_code == 409, refused.text
    assert "has a member" in refused.json()["detail"]
    await client.terminate("group")
    assert (await http.get("/v1/groups/group")).json()["state"] == "empty"
    assert (await http.delete("/v1/groups/group")).status_code == 204
    assert GroupId("group") not in broker.app.broker.subscriptions


async def test_a_reset_over_http(client: MessagingClient, http: httpx.AsyncClient, orders: None) -> None:
    done = await http.post("/v1/groups/group/reset", json={"to": "earliest"})
    assert done.status_code == 200, done.text
    [change] = done.json()["changes"]
    assert (change["before"], change["after"], change["lag"]) == (1, 0, 5)
    assert bodies(await client.receive("orders")) == [b"0", b"1", b"2", b"3", b"4"]


# With Kafka's requests


async def test_with_kafkas_requests(broker: AsyncBroker, client: MessagingClient, orders: None) -> None:
    async with Wire(broker.kafka) as wire:
        [listed] = (await wire.ask(ListGroupsRequest(), ListGroupsResponse)).groups
        assert (listed.group_id, listed.group_type, listed.group_state) == ("group", "share", "Stable")
        describe = ShareGroupDescribeRequest(group_ids=["group"])
        [described] = (await wire.ask(describe, ShareGroupDescribeResponse)).groups
        [member] = described.members
        assert (described.group_state, member.member_id) == ("Stable", "client")
        assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", ["orders"])
        [assigned] = member.assignment.topic_partitions
        assert (assigned.topic_name, assigned.partitions) == ("orders", [0])
        delete = DeleteGroupsRequest(groups_names=["group"])
        [result] = (await wire.ask(delete, DeleteGroupsResponse)).results
        assert result.error_code == ErrorCode.NON_EMPTY_GROUP
        place = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
        topic = AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=[place])
        alter = AlterShareGroupOffsetsRequest(group_id="group", topics=[topic])
        moved = await wire.ask(alter, AlterShareGroupOffsetsResponse)
        assert moved.error_code == 0
        assert bodies(await client.receive("orders")) == [b"0", b"1", b"2", b"3", b"4"]
        await client.terminate("group")
        [described] = (await wire.ask(describe, ShareGroupDescribeResponse)).groups
        assert (described.group_state, described.members) == ("Empty", [])
        [result] = (await wire.ask(delete, DeleteGroupsResponse)).results
        assert result.error_code == 0
