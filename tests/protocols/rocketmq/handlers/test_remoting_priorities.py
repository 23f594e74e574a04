"""Priorities of the remoting protocol: they choose the queue. And lite topics, which there are none of."""

import pytest

from posthouse.broker.topics import NewTopic
from posthouse.protocols.rocketmq.codec.batch_bodies import BatchMessage, encode_batch
from posthouse.protocols.rocketmq.codec.codes import LITE_TOPIC, PRIORITY, RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.properties import encode_properties
from posthouse.protocols.rocketmq.priorities import SETTING
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient, own_properties


def setting(broker: AsyncBroker, topic: str = "orders") -> str | None:
    return broker.app.broker.topic(topic).overrides.get(SETTING)


async def queue_of(client: RemotingClient, properties: dict[str, str], topic: str = "orders") -> str:
    """To queue 1, if the priority does not matter."""
    answer = await client.send(topic, b"v", queue=1, properties=properties)
    assert answer.code == 0, answer.remark
    return answer.fields["queueId"]


@pytest.mark.parametrize(
    ("priority", "queue"), [("0", "0"), ("2", "2"), ("3", "3"), ("4", "3"), ("2147483647", "3")]
)
async def test_the_queue_of_a_priority(
    broker: AsyncBroker, client: RemotingClient, priority: str, queue: str
) -> None:
    assert await queue_of(client, {PRIORITY: priority}) == queue
    [message] = await client.messages("orders", queue=int(queue))
    assert own_properties(message) == {PRIORITY: priority}
    assert setting(broker) == "true"


@pytest.mark.parametrize("text", ["-1", "high", "", "2147483648", "٣", "1.5", "9" * 5000])
async def test_what_is_no_priority(broker: AsyncBroker, client: RemotingClient, text: str) -> None:
    """As upstream, it is a property like any other."""
    properties = {PRIORITY: text} if text else {}
    assert await queue_of(client, properties) == "1"
    [message] = await client.messages("orders", queue=1)
    assert own_properties(message) == properties
    assert setting(broker) is None


@pytest.mark.parametrize(
    "others", [{"__SHARDINGKEY": "k"}, {"DELAY": "0"}, {"TIMER_DELIVER_MS": "1"}, {"TRAN_MSG": "true"}]
)
async def test_messages_of_another_type_have_no_priority(
    broker: AsyncBroker, client: RemotingClient, others: dict[str, str]
) -> None:
    """Upstream takes the property away."""
    answer = await client.send("orders", b"v", queue=1, properties={PRIORITY: "3", **others})
    assert answer.code == 0, answer.remark
    if "TRAN_MSG" not in others:
        assert answer.fields["queueId"] == "1"
        [message] = await client.messages("orders", queue=1)
        assert PRIORITY not in own_properties(message)
    assert setting(broker) is None


async def test_messages_without_a_priority(broker: AsyncBroker, client: RemotingClient) -> None:
    """They are where the producer wants them; the lowest queue has those of producers that do not say."""
    assert await queue_of(client, {PRIORITY: "3"}) == "3"
    assert await queue_of(client, {}) == "1"
    for _ in range(8):
        assert (await client.send("orders", b"v", queue=-1)).fields["queueId"] == "0"


async def test_a_topic_that_takes_no_priorities(broker: AsyncBroker, client: RemotingClient) -> None:
    no = NewTopic(name="orders", partitions=4, overrides={SETTING: "false"})
    await broker.app.broker.create_topics([no])
    answer = await client.send("orders", b"v", properties={PRIORITY: "3"})
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL and SETTING in (answer.remark or "")
    assert await queue_of(client, {}) == "1"


async def test_what_is_refused_makes_no_priorities(broker: AsyncBroker, client: RemotingClient) -> None:
    assert await queue_of(client, {}) == "1"
    answer = await client.send("orders", bytes(2 << 20), properties={PRIORITY: "3"})
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert setting(broker) is None


async def test_topics_of_a_group_have_no_priorities(broker: AsyncBroker, client: RemotingClient) -> None:
    answer = await client.send("%RETRY%group", b"v", properties={PRIORITY: "3"})
    assert (answer.code, answer.fields["queueId"]) == (0, "0")
    assert setting(broker, ".RETRY.group") is None


def batch(**properties: str) -> bytes:
    return encode_batch([BatchMessage(body=b"v", flag=0, properties=encode_properties(properties))])


async def test_a_batch_has_one_queue(broker: AsyncBroker, client: RemotingClient) -> None:
    """So what asks for another one is refused. Nothing of the batch is stored."""
    for properties in ({PRIORITY: "3"}, {LITE_TOPIC: "lite"}):
        body = batch() + batch(**properties)
        answer = await client.request(
            RequestCode.SEND_BATCH_MESSAGE, client.send_fields("orders", m="true"), body
        )
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark
    assert broker.app.broker.bounds(broker.app.broker.topic("orders"), 0).end == 0
    assert setting(broker) is None


async def test_lite_topics_are_refused(broker: AsyncBroker, client: RemotingClient) -> None:
    answer = await client.send("orders", b"v", properties={LITE_TOPIC: "lite"})
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "lite topics are not supported" in (answer.remark or "")
    assert list(broker.app.broker.topics) == []
    assert (await client.send("orders", b"v", properties={LITE_TOPIC: ""})).code == 0
