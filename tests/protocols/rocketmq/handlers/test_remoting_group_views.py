"""A group of remoting consumers, as operators see it over HTTP, with Kafka's requests and in metrics."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, group


@pytest.fixture
async def consumer(broker: AsyncBroker) -> AsyncIterator[RemotingClient]:
    """It has read four of ten messages of one queue."""
    async with Wire(broker.kafka) as wire:
        id = await wire.create_topic("t", 2)
        for number in range(10):
            await wire.produce(id, batch(b"%d" % number))
    async with client_of(broker) as connected:
        assert (await connected.beat("consumer", group("g", t="a || b"))).code == 0
        fields: dict[str, str | int] = {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": 0,
            "commitOffset": 4,
        }
        assert (await connected.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
        yield connected


@pytest.fixture
async def http(broker: AsyncBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{broker.address('admin')}", timeout=DEADLINE) as connected:
        yield connected


async def shown(http: httpx.AsyncClient) -> Any:
    answer = await http.get("/v1/groups/g")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_empty(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(DEADLINE):
        while (await shown(http))["state"] != "empty":
            await asyncio.sleep(0.001)


async def test_members_over_http(http: httpx.AsyncClient, consumer: RemotingClient) -> None:
    [listed] = (await http.get("/v1/groups")).json()["items"]
    assert listed == {
        "name": "g",
        "kind": "classic",
        "state": "stable",
        "members": 1,
        "partitions": 1,
        "lag": 6,
    }
    found = await shown(http)
    assert (found["kind"], found["state"], found["members_total"]) == ("classic", "stable", 1)
    [member] = found["members"]
    assert (member["id"], member["client"], member["host"]) == ("consumer", "consumer", "/127.0.0.1")
    assert member["topics"] == ["t"]
    assert 'posthouse_group_members{group="g"} 1' in (await http.get("/metrics")).text
    await consumer.close()
    await until_empty(http)
    assert 'posthouse_group_members{group="g"} 0' in (await http.get("/metrics")).text


async def test_a_group_without_offsets_is_there_by_its_consumer(
    broker: AsyncBroker, client: RemotingClient, http: httpx.AsyncClient
) -> None:
    assert (await client.beat("consumer", group("g", t="*"))).code == 0
    assert [each["name"] for each in (await http.get("/v1/groups")).json()["items"]] == ["g"]
    found = await shown(http)
    assert (found["kind"], found["state"], found["offsets"]) == ("classic", "stable", [])
    assert (await http.delete("/v1/groups/g")).status_code == 409
    async with Wire(broker.kafka) as wire:
        assert (await described(wire)).group_state == "Stable"
    assert (await client.request(RequestCode.UNREGISTER_CLIENT, leaving())).code == 0
    assert (await http.get("/v1/groups/g")).status_code == 404


def leaving() -> dict[str, str | int]:
    return {"clientID": "consumer", "consumerGroup": "g"}


async def test_it_is_not_deleted_while_it_has_consumers(
    broker: AsyncBroker, http: httpx.AsyncClient, consumer: RemotingClient
) -> None:
    refused = await http.delete("/v1/groups/g")
    assert refused.status_code == 409, refused.text
    assert "has a member" in refused.json()["detail"]
    assert broker.app.broker.groups.offsets.has(GroupId("g"))
    assert (await consumer.request(RequestCode.UNREGISTER_CLIENT, leaving())).code == 0
    assert (await http.delete("/v1/groups/g")).status_code == 204
    assert not broker.app.broker.groups.offsets.has(GroupId("g"))


async def described(wire: Wire) -> DescribedGroup:
    [found] = (await wire.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse)).groups
    return found


async def test_with_kafkas_requests(
    broker: AsyncBroker, http: httpx.AsyncClient, consumer: RemotingClient
) -> None:
    async with Wire(broker.kafka) as wire:
        [listed] = (await wire.ask(ListGroupsRequest(), ListGroupsResponse)).groups
        assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "classic", "Stable")
        found = await described(wire)
        [member] = found.members
        assert (found.group_state, found.protocol_type) == ("Stable", "")
        assert (member.member_id, member.client_host) == ("consumer", "/127.0.0.1")
        place = OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequestTopic(name="t", partitions=[place])
        gone = await wire.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), OffsetDeleteResponse)
        assert gone.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        delete = DeleteGroupsRequest(groups_names=["g"])
        [result] = (await wire.ask(delete, DeleteGroupsResponse)).results
        assert result.error_code == ErrorCode.NON_EMPTY_GROUP
        await consumer.close()
        await until_empty(http)
        found = await described(wire)
        assert (found.group_state, found.members) == ("Empty", [])
        [result] = (await wire.ask(delete, DeleteGroupsResponse)).results
        assert result.error_code == 0
