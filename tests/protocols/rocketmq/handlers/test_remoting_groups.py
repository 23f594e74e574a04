"""Groups, and how far they have come, as tools see them."""

import asyncio
import json
from typing import Any

import pytest

from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.lenient_json import decode_json
from posthouse.protocols.rocketmq.codec.routes import decode_topic_list
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, group

CREATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP
START = 1_700_000_000_000


@pytest.fixture
async def topic(broker: AsyncBroker) -> None:
    async with Wire(broker.kafka) as wire:
        id = await wire.create_topic("t", 2)
        for number in range(10):
            await wire.produce(id, batch(b"%d" % number, timestamp=START + 1000 * number))


async def commit(client: RemotingClient, offset: int) -> None:
    fields: dict[str, str | int] = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": offset}
    assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0


def configuration(name: str = "g", **others: Any) -> bytes:
    """As mqadmin sends it."""
    sent = {
        "brokerId": 0,
        "consumeBroadcastEnable": False,
        "consumeEnable": True,
        "consumeFromMinEnable": False,
        "groupName": name,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "attributes": {},
    }
    return json.dumps(sent | others).encode()


async def groups(client: RemotingClient) -> list[str]:
    answer = await client.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return list(json.loads(bytes(answer.body))["subscriptionGroupTable"])


def by_queue(body: bytes | memoryview) -> dict[int, Any]:
    table = decode_json(body)
    assert isinstance(table, dict)
    offsets = table["offsetTable"]
    assert isinstance(offsets, dict)
    return {json.loads(key)["queueId"]: value for key, value in offsets.items()}


async def test_a_group_is_created_and_deleted(broker: AsyncBroker, client: RemotingClient) -> None:
    assert (await client.request(CREATE, None, configuration())).code == 0
    assert (await client.request(CREATE, None, configuration())).code == 0
    assert await groups(client) == ["g"]
    assert [each.name for each in broker.app.broker.topics] == [".RETRY.g"]
    found = await client.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert json.loads(bytes(found.body))["retryMaxTimes"] == 16
    assert (await client.request(DELETE, {"groupName": "g"})).code == 0
    assert await groups(client) == []
    assert (
        await client.request(DELETE, {"groupName": "g"})
    ).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    missing = await client.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert missing.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_settings_for_consumers_of_the_other_protocol(
    broker: AsyncBroker, client: RemotingClient
) -> None:
    body = configuration(consumeMessageOrderly=True, retryMaxTimes=3)
    assert (await client.request(CREATE, None, body)).code == 0
    config = broker.app.broker.group_configs.get(GroupId("g"))
    assert (config.rocketmq_fifo_enable, config.share_delivery_count_limit) == (True, 4)
    found = json.loads(
        bytes((await client.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})).body)
    )
    assert (found["consumeMessageOrderly"], found["retryMaxTimes"]) == (True, 3)
    assert (await client.request(CREATE, None, configuration())).code == 0
    config = broker.app.broker.group_configs.get(GroupId("g"))
    assert (config.rocketmq_fifo_enable, config.share_delivery_count_limit) == (False, 17)


async def test_the_priority_factor_of_a_group(broker: AsyncBroker, client: RemotingClient) -> None:
    async def factor() -> tuple[int, object]:
        found = await client.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        config = broker.app.broker.group_configs.get(GroupId("g"))
        return config.rocketmq_priority_factor, json.loads(bytes(found.body))["attributes"]

    assert (await client.request(CREATE, None, configuration())).code == 0
    assert await factor() == (100, {})
    for given in ({"+priority.factor": "40"}, {}, {"+priority.factor": "40"}):
        assert (await client.request(CREATE, None, configuration(attributes=given))).code == 0
        assert await factor() == (40, {"priority.factor": "40"})
    for wrong in ("101", "-1", "many"):
        answer = await client.request(CREATE, None, configuration(attributes={"+priority.factor": wrong}))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "rocketmq.priority.factor" in (
            answer.remark or ""
        )
    assert await factor() == (40, {"priority.factor": "40"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"consumeEnable": False},
        {"retryMaxTimes": -1},
        {"retryMaxTimes": 65_535},
        {"retryQueueNums": 2},
        {"attributes": {"+a": "b"}},
        {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1]}}},
    ],
)
async def test_settings_that_groups_do_not_have(
    client: RemotingClient, broker: AsyncBroker, wrong: dict[str, Any]
) -> None:
    answer = await client.request(CREATE, None, configuration(**wrong))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark
    assert list(broker.app.broker.topics) == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"groupName":5}'])
async def test_bodies_that_are_no_group(client: RemotingClient, body: bytes) -> None:
    assert (await client.request(CREATE, None, body)).code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("name", ["a b", ""])
async def test_names_that_no_group_can_have(client: RemotingClient, name: str) -> None:
    answer = await client.request(CREATE, None, configuration(name))
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_a_group_with_consumers_is_not_deleted(
    broker: AsyncBroker, client: RemotingClient, topic: None
) -> None:
    await commit(client, 4)
    async with client_of(broker) as consumer:
        assert (await consumer.beat("c", group("g", t="*"))).code == 0
        answer = await client.request(DELETE, {"groupName": "g", "cleanOffset": "true"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "1 clients" in (answer.remark or "")
    offsets = broker.app.broker.groups.offsets
    async with asyncio.timeout(DEADLINE):
        while (await client.request(DELETE, {"groupName": "g"})).code:
            await asyncio.sleep(0.001)
    assert offsets.has(GroupId("g"))
    kept = await client.request(DELETE, {"groupName": "g"})
    assert kept.code == ResponseCode.SYSTEM_ERROR and "-r true" in (kept.remark or "")
    assert (await client.request(DELETE, {"groupName": "g", "cleanOffset": "true"})).code == 0
    assert not offsets.has(GroupId("g"))
    gone = await client.request(DELETE, {"groupName": "g", "cleanOffset": "true"})
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_topics_and_groups(client: RemotingClient, topic: None) -> None:
    assert (await client.send("u", b"x")).code == 0
    await commit(client, 4)
    assert (await client.beat("c", group("h", u="a || b", t="*"))).code == 0
    answer = await client.request(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "h"})
    assert decode_topic_list(answer.body) == ("t", "u")
    answer = await client.request(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"})
    assert decode_topic_list(answer.body) == ("t",)
    for name, found in (("t", ["g", "h"]), ("u", ["h"])):
        answer = await client.request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": name})
        assert json.loads(bytes(answer.body)) == {"groupList": found}
    fields = {"group": "h", "topic": "u"}
    answer = await client.request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, fields)
    assert json.loads(bytes(answer.body))["subscriptionData"]["subString"] == "a || b"
    answer = await client.request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g", "topic": "u"})
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_the_progress_of_a_group(client: RemotingClient, topic: None) -> None:
    await commit(client, 4)
    for fields in ({"consumerGroup": "g"}, {"consumerGroup": "g", "topic": "t"}):
        answer = await client.request(RequestCode.GET_CONSUME_STATS, fields)
        found = by_queue(answer.body)
        assert found[0] == {
            "brokerOffset": 10,
            "consumerOffset": 4,
            "pullOffset": 4,
            "lastTimestamp": START + 3000,
        }
        assert (found[1]["brokerOffset"], found[1]["lastTimestamp"]) == (0, 0)
    answer = await client.request(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "none"})
    assert (answer.code, by_queue(answer.body)) == (0, {})
    answer = await client.request(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "none"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_state_of_a_topic(broker: AsyncBroker, client: RemotingClient, topic: None) -> None:
    await broker.app.broker.delete_records(broker.app.broker.topic("t"), 0, 4)
    answer = await client.request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"})
    found = by_queue(answer.body)
    assert found[0] == {"minOffset": 4, "maxOffset": 10, "lastUpdateTimestamp": START + 9000}
    assert found[1] == {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0}
    answer = await client.request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
