"""Offsets of groups and of queues. Groups are those that tools of Kafka see."""

import asyncio

import httpx
import pytest

from posthouse.broker.topics import NewTopic
from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq import first_offsets
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
async def topic(broker: AsyncBroker) -> bytes:
    """With ten records, a second apart."""
    async with Wire(broker.kafka) as wire:
        id = await wire.create_topic("t", 2)
        for number in range(10):
            await wire.produce(id, batch(b"%d" % number, timestamp=1_700_000_000_000 + 1000 * number))
        return id


def place(group: str = "g", topic: str = "t", queue: int = 0, **others: int) -> dict[str, str | int]:
    return {"consumerGroup": group, "topic": topic, "queueId": queue, **others}


async def query(client: RemotingClient, **changed: str | int) -> int:
    answer = await client.request(QUERY, place() | changed)
    assert answer.code == 0, answer.remark
    return int(answer.fields["offset"])


async def test_offsets_of_queues(broker: AsyncBroker, client: RemotingClient, topic: bytes) -> None:
    assert await client.offset(RequestCode.GET_MIN_OFFSET, "t") == 0
    assert await client.offset(RequestCode.GET_MAX_OFFSET, "t") == 10
    assert await client.offset(RequestCode.GET_MAX_OFFSET, "t", 1) == 0
    await broker.app.broker.delete_records(broker.app.broker.topic("t"), 0, 4)
    assert await client.offset(RequestCode.GET_MIN_OFFSET, "t") == 4


@pytest.mark.parametrize(
    ("after", "offset"), [(-5000, 0), (0, 0), (1, 1), (4000, 4), (4001, 5), (9000, 9), (9001, 10)]
)
async def test_offsets_by_time(client: RemotingClient, topic: bytes, after: int, offset: int) -> None:
    time = 1_700_000_000_000 + after
    assert await client.offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "t", timestamp=time) == offset


async def test_offsets_by_extreme_times(client: RemotingClient, topic: bytes) -> None:
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert await client.offset(search, "t", timestamp=-(1 << 63)) == 0
    assert await client.offset(search, "t", timestamp=(1 << 63) - 1) == 10
    assert await client.offset(search, "t", 1, timestamp=0) == 0


@pytest.mark.parametrize("code", [QUERY, UPDATE, 29, 30, 31])
async def test_queues_that_do_not_exist(client: RemotingClient, topic: bytes, code: int) -> None:
    others = {"commitOffset": 1, "timestamp": 1}
    for wrong in ({"topic": "none"}, {"queueId": 2}, {"queueId": -1}):
        answer = await client.request(code, place() | others | wrong)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    for malformed in ({"queueId": "x"}, {"queueId": ""}):
        answer = await client.request(code, place() | others | malformed)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "queueId" in (answer.remark or "")


async def test_commits(broker: AsyncBroker, client: RemotingClient, topic: bytes) -> None:
    assert (await client.request(UPDATE, place(commitOffset=7))).code == 0
    assert await query(client) == 7
    assert (await client.request(UPDATE, place(commitOffset=3))).code == 0
    assert await query(client) == 3
    client.oneway(UPDATE, place(commitOffset=4))
    client.oneway(UPDATE, place(commitOffset=5, queue=1))
    async with asyncio.timeout(DEADLINE):
        while (await query(client), await query(client, queueId=1)) != (4, 5):
            await asyncio.sleep(0.001)
    assert await query(client, consumerGroup="other") == 0
    assert (await client.request(UPDATE, place(commitOffset=-1))).code == ResponseCode.SYSTEM_ERROR
    assert (await client.request(UPDATE, place())).code == ResponseCode.SYSTEM_ERROR
    for name in ("", "a b", "g" * 300):
        answer = await client.request(UPDATE, place(name, commitOffset=1))
        assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_an_offset_that_overtakes_is_the_last(client: RemotingClient, topic: bytes) -> None:
    """One that goes back to what is stored, while a newer one is not stored yet."""
    assert (await client.request(UPDATE, place(commitOffset=3))).code == 0
    for _ in range(20):
        answers = [client.start(UPDATE, place(commitOffset=offset)) for offset in (8, 3)]
        assert [(await each).code for each in answers] == [0, 0]
        assert await query(client) == 3


async def test_repeated_commits_are_not_stored(
    broker: AsyncBroker, client: RemotingClient, topic: bytes
) -> None:
    group_offsets = broker.app.broker.groups.offsets
    assert (await client.request(UPDATE, place(commitOffset=7))).code == 0
    partition = broker.app.broker.topic("t").partition(0)
    first = group_offsets.get(GroupId("g"), partition)
    for _ in range(3):
        assert (await client.request(UPDATE, place(commitOffset=7))).code == 0
    assert group_offsets.get(GroupId("g"), partition) == first


async def test_kafka_sees_the_group(broker: AsyncBroker, client: RemotingClient, topic: bytes) -> None:
    assert (await client.request(UPDATE, place(commitOffset=7))).code == 0
    async with httpx.AsyncClient(base_url=f"http://{broker.address('admin')}") as http:
        [listed] = (await http.get("/v1/groups")).json()["items"]
        assert (listed["name"], listed["state"], listed["lag"]) == ("g", "empty", 3)
        [found] = (await http.get("/v1/groups/g")).json()["offsets"]
        assert (found["topic"], found["partition"], found["committed"]) == ("t", 0, 7)


async def test_where_a_new_group_begins(
    broker: AsyncBroker, client: RemotingClient, topic: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await query(client) == 0
    await broker.app.broker.create_topics([NewTopic(name="empty", partitions=1)])
    assert await query(client, topic="empty") == 0
    monkeypatch.setattr(first_offsets, "FROM_THE_START_BYTES", 100)
    assert (await client.request(QUERY, place())).code == ResponseCode.QUERY_NOT_FOUND
    assert await query(client, topic="empty") == 0
    monkeypatch.undo()
    await broker.app.broker.delete_records(broker.app.broker.topic("t"), 0, 1)
    assert (await client.request(QUERY, place())).code == ResponseCode.QUERY_NOT_FOUND
    assert (await client.request(UPDATE, place(commitOffset=0))).code == 0
    assert await query(client) == 0


async def test_offsets_of_a_topic_that_was_deleted(
    broker: AsyncBroker, client: RemotingClient, topic: bytes
) -> None:
    assert (await client.request(UPDATE, place(commitOffset=7))).code == 0
    await broker.app.broker.delete_topics([broker.app.broker.topic("t")])
    assert (await client.request(QUERY, place())).code == ResponseCode.TOPIC_NOT_EXIST
    await broker.app.broker.create_topics([NewTopic(name="t", partitions=1)])
    assert await query(client) == 0
