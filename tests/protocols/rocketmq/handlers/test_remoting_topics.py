"""Topics, as tools list, create, grow and delete them."""

import json

import pytest

from posthouse.broker.topics import NewTopic
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.routes import decode_topic_configuration, decode_topic_list
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient, group

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC
DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


def wanted(topic: str, queues: int = 8, **others: str | int) -> dict[str, str | int]:
    """As mqadmin sends it."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "attributes": "",
        **others,
    }


def topics(broker: AsyncBroker) -> dict[str, int]:
    return {each.name: each.partitions for each in broker.app.broker.topics}


async def test_a_topic_is_created_and_grows(broker: AsyncBroker, client: RemotingClient) -> None:
    assert (await client.request(CREATE, wanted("t", 2))).code == 0
    assert (await client.request(CREATE, wanted("t", 2))).code == 0
    assert topics(broker) == {"t": 2}
    assert (await client.request(CREATE, wanted("t", 5))).code == 0
    assert topics(broker) == {"t": 5}
    answer = await client.request(CREATE, wanted("t", 4))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "5 queues" in (answer.remark or "")
    assert (await client.request(CREATE, wanted("f", attributes="+message.type=FIFO"))).code == 0
    assert topics(broker) == {"t": 5, "f": 8}


async def test_topics_with_priorities(broker: AsyncBroker, client: RemotingClient) -> None:
    async def attributes(name: str) -> object:
        answer = await client.request(RequestCode.GET_TOPIC_CONFIG, {"topic": name})
        return json.loads(bytes(answer.body))["attributes"]

    priority = "+message.type=PRIORITY"
    assert (await client.request(CREATE, wanted("new", attributes=priority))).code == 0
    assert (await client.request(CREATE, wanted("old"))).code == 0
    assert await attributes("new") == {"message.type": "PRIORITY"}
    assert await attributes("old") == {}
    for _ in range(2):
        assert (await client.request(CREATE, wanted("old", 9, attributes=priority))).code == 0
        assert await attributes("old") == {"message.type": "PRIORITY"}
    for name in ("new", "old"):
        assert broker.app.broker.topic(name).config.rocketmq_priority_enable
        assert broker.app.broker.topic(name).config.index_keys
    assert topics(broker) == {"new": 8, "old": 9}


@pytest.mark.parametrize(
    "wrong",
    [
        {"readQueueNums": 4},
        {"perm": 4},
        {"perm": 2},
        {"order": "true"},
        {"attributes": "+message.type=FIFO,+queue.type=BatchCQ"},
        {"attributes": "+message.type=LITE"},
    ],
)
async def test_topics_that_cannot_be(
    broker: AsyncBroker, client: RemotingClient, wrong: dict[str, str | int]
) -> None:
    answer = await client.request(CREATE, wanted("t") | wrong)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark
    assert topics(broker) == {}


@pytest.mark.parametrize(
    ("name", "queues", "code"),
    [
        ("", 1, ResponseCode.INVALID_PARAMETER),
        ("a b", 1, ResponseCode.INVALID_PARAMETER),
        ("TBW102", 1, ResponseCode.INVALID_PARAMETER),
        ("t" * 128, 1, ResponseCode.INVALID_PARAMETER),
        ("t", 0, ResponseCode.MESSAGE_ILLEGAL),
        ("t", -1, ResponseCode.MESSAGE_ILLEGAL),
        ("t", 2**40, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_names_and_numbers_that_cannot_be(
    broker: AsyncBroker, client: RemotingClient, name: str, queues: int, code: ResponseCode
) -> None:
    assert (await client.request(CREATE, wanted(name, queues))).code == code
    assert topics(broker) == {}


async def test_a_topic_is_deleted(broker: AsyncBroker, client: RemotingClient) -> None:
    assert (await client.send("t", b"x")).code == 0
    route = await client.request(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"})
    assert route.code == ResponseCode.SYSTEM_ERROR
    assert (await client.request(DELETE, {"topic": "t"})).code == 0
    assert (await client.request(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"})).code == 0
    assert topics(broker) == {}
    assert (await client.request(DELETE, {"topic": "t"})).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await client.request(DELETE, {"topic": "%DLQ%g"})).code == 0
    assert (await client.request(DELETE, {"topic": "a b"})).code == ResponseCode.INVALID_PARAMETER


async def test_no_topic_has_an_order_of_its_own(client: RemotingClient) -> None:
    fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t"}
    assert (await client.request(RequestCode.DELETE_KV_CONFIG, fields)).code == 0
    assert (await client.request(100, fields)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_lists(broker: AsyncBroker, client: RemotingClient) -> None:
    await broker.app.broker.create_topics([NewTopic(name="orders.v1", partitions=3)])
    assert (await client.beat("c", group("g", t="*"))).code == 0
    for code in (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER):
        answer = await client.request(code, {"cluster": "posthouse"})
        assert sorted(decode_topic_list(answer.body)) == ["%RETRY%g", "orders%v1"]
    answer = await client.request(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = json.loads(bytes(answer.body))["topicConfigTable"]
    assert table["orders%v1"]["writeQueueNums"] == 3
    answer = await client.request(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders%v1"})
    found = decode_topic_configuration(answer.body)
    assert (found.name, found.read_queues, found.permission) == ("orders%v1", 3, 6)
    missing = await client.request(RequestCode.GET_TOPIC_CONFIG, {"topic": "none"})
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST
    for code in (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER):
        answer = await client.request(code)
        assert decode_topic_list(answer.body) == ("TBW102", "posthouse_REPLY_TOPIC")
