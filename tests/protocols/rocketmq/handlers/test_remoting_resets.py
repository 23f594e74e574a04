"""Groups are moved while their consumers run: by tools of RocketMQ, of Kafka, and over HTTP."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from posthouse.model.errors import StorageFull
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.rocketmq import offset_resets
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue, decode_offset_table
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.heartbeats import BROADCASTING, PULL, ConsumerGroup, Subscription
from posthouse.protocols.rocketmq.remoting.connection import RemotingConnection
from posthouse.protocols.rocketmq.remoting.server import RemotingServer
from posthouse.testing import AsyncBroker
from tests.cli.programs import inside
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, group

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
START = 1_700_000_000_000
MOVED = ResponseCode.PULL_OFFSET_MOVED


@pytest.fixture
async def topic(broker: AsyncBroker, client: RemotingClient) -> None:
    """With ten records, a second apart, and a group that has read all."""
    async with Wire(broker.kafka) as wire:
        id = await wire.create_topic("t", 2)
        for number in range(10):
            await wire.produce(id, batch(b"%d" % number, timestamp=START + 1000 * number))
    await commit(client, 10)


@pytest.fixture
async def consumer(broker: AsyncBroker, topic: None) -> AsyncIterator[RemotingClient]:
    async with client_of(broker) as connected:
        assert (await connected.beat("consumer", group("g", t="*"))).code == 0
        assert (await connected.pushed.get()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        yield connected


def place(queue: int = 0, **others: str | int) -> dict[str, str | int]:
    return {"consumerGroup": "g", "topic": "t", "queueId": queue, **others}


async def commit(client: RemotingClient, offset: int, queue: int = 0) -> None:
    fields = place(queue, commitOffset=offset)
    assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0


async def committed(client: RemotingClient, queue: int = 0) -> int:
    answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, place(queue))
    assert answer.code == 0, answer.remark
    return int(answer.fields["offset"])


async def reset(client: RemotingClient, **fields: str | int) -> dict[int, int]:
    answer = await client.request(RESET, {"group": "g", "topic": "t", "isForce": "true", **fields})
    assert answer.code == 0, answer.remark
    return {queue.queue: offset for queue, offset in decode_offset_table(answer.body).items()}


async def pull(client: RemotingClient, offset: int, wait_ms: int | None = None) -> Command:
    async with asyncio.timeout(DEADLINE):
        fields = client.pull_fields("t", offset, wait_ms=wait_ms, consumerGroup="g")
        return await client.start(RequestCode.PULL_MESSAGE, fields)


def server_of(broker: AsyncBroker) -> RemotingServer:
    for connection in broker.app.connections:
        if isinstance(connection, RemotingConnection):
            return connection.server
    raise AssertionError("there is no connection")


@pytest.mark.parametrize(
    ("time", "offset"), [(START, 0), (START + 3500, 4), (START + 9000, 9), (START + 9001, 10), (-1, 10)]
)
async def test_by_time(client: RemotingClient, topic: None, time: int, offset: int) -> None:
    assert await reset(client, timestamp=time) == {0: offset, 1: 0}
    assert (await committed(client), await committed(client, 1)) == (offset, 0)


async def test_one_queue_to_an_offset(client: RemotingClient, topic: None) -> None:
    assert await reset(client, queueId=0, offset=3, timestamp=0) == {0: 3}
    assert await committed(client) == 3
    assert await reset(client, queueId=0, offset=-1, timestamp=START + 5000) == {0: 5}
    for wrong in (11, -2):
        fields: dict[str, str | int] = {"group": "g", "topic": "t", "queueId": 0, "offset": wrong}
        answer = await client.request(RESET, fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "0 to 10" in (answer.remark or "")
    assert await committed(client) == 5


async def test_only_back(client: RemotingClient, topic: None) -> None:
    await commit(client, 5)
    assert await reset(client, timestamp=START + 8000, isForce="false") == {0: 5, 1: 0}
    assert await committed(client) == 5
    assert await reset(client, timestamp=START + 2000, isForce="false") == {0: 2, 1: 0}
    assert await committed(client) == 2


async def test_what_cannot_be_reset(client: RemotingClient, topic: None) -> None:
    async def code(**changed: str | int) -> int:
        return (await client.request(RESET, {"group": "g", "topic": "t", "timestamp": 0, **changed})).code

    assert await code(topic="none") == ResponseCode.TOPIC_NOT_EXIST
    assert await code(group="none") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert await code(queueId=2) == ResponseCode.TOPIC_NOT_EXIST
    assert await code(group="") == ResponseCode.INVALID_PARAMETER
    assert await code(timestamp="now") == ResponseCode.SYSTEM_ERROR
    assert await committed(client) == 10


async def test_a_consumer_that_waits_for_messages(client: RemotingClient, consumer: RemotingClient) -> None:
    waiting = asyncio.create_task(pull(consumer, 10, wait_ms=60_000))
    await asyncio.sleep(0)
    assert await reset(client, timestamp=START + 2000) == {0: 2, 1: 0}
    answer = await waiting
    assert (answer.code, answer.fields["nextBeginOffset"]) == (MOVED, "2")
    await commit(consumer, 10)  # it says how far it had come before it was told
    assert await committed(client) == 2
    await commit(consumer, 2)
    found = await pull(consumer, 2)
    assert (found.code, found.fields["nextBeginOffset"]) == (0, "10")
    await commit(consumer, 7)
    assert await committed(client) == 7


async def test_a_consumer_in_the_middle(client: RemotingClient, consumer: RemotingClient) -> None:
    await reset(client, timestamp=START + 8000)
    fields = consumer.pull_fields("t", 5, consumerGroup="g", sysFlag=5, commitOffset=4)
    answer = await consumer.request(RequestCode.PULL_MESSAGE, fields)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (MOVED, "8")
    assert await committed(client) == 8
    assert (await pull(consumer, 8)).code == 0
    fields = consumer.pull_fields("t", 10, consumerGroup="g", sysFlag=5, commitOffset=9)
    assert (await consumer.request(RequestCode.PULL_MESSAGE, fields)).code == ResponseCode.PULL_NOT_FOUND
    assert await committed(client) == 9


async def test_readers_of_other_groups_and_tools_are_left_alone(
    client: RemotingClient, consumer: RemotingClient
) -> None:
    await reset(client, timestamp=START)
    assert (await pull(client, 5)).code == 0
    assert (await consumer.pull("t", 5)).code == 0
    await commit(client, 6)  # a tool: what it says, counts
    assert await committed(client) == 6


async def test_over_http(broker: AsyncBroker, client: RemotingClient, consumer: RemotingClient) -> None:
    waiting = asyncio.create_task(pull(consumer, 10, wait_ms=60_000))
    await asyncio.sleep(0)
    async with httpx.AsyncClient(base_url=f"http://{broker.address('admin')}") as http:
        done = await http.post("/v1/groups/g/reset", json={"to": "offset:4"})
        assert done.status_code == 200, done.text
    answer = await waiting
    assert (answer.code, answer.fields["nextBeginOffset"]) == (MOVED, "4")


async def test_by_a_client_of_kafka(
    broker: AsyncBroker, client: RemotingClient, consumer: RemotingClient
) -> None:
    waiting = asyncio.create_task(pull(consumer, 10, wait_ms=60_000))
    await asyncio.sleep(0)
    async with Wire(broker.kafka) as wire:
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=6)
        topics = [OffsetCommitRequestTopic(topic_id=broker.app.broker.topic("t").id, partitions=[place])]
        stored = await wire.ask(OffsetCommitRequest(group_id="g", topics=topics), OffsetCommitResponse)
        assert stored.topics[0].partitions[0].error_code == 0
    answer = await waiting
    assert (answer.code, answer.fields["nextBeginOffset"]) == (MOVED, "6")
    assert await committed(client) == 6


async def test_by_posthouse_group(
    broker: AsyncBroker, client: RemotingClient, consumer: RemotingClient
) -> None:
    waiting = asyncio.create_task(pull(consumer, 10, wait_ms=60_000))
    await asyncio.sleep(0)
    reset = ["group", "reset", "g", "--topic", "t:0", "--to", "7"]
    done = await asyncio.to_thread(inside, *reset, bootstrap=broker.kafka)
    assert done.returncode == 0, done
    answer = await waiting
    assert (answer.code, answer.fields["nextBeginOffset"]) == (MOVED, "7")
    shown = await asyncio.to_thread(inside, "group", "list", bootstrap=broker.kafka)
    assert shown.stdout.splitlines()[1].split() == ["g", "Stable", "classic", "1"]


async def test_a_group_without_consumers_has_nobody_to_be_told(
    broker: AsyncBroker, client: RemotingClient, topic: None
) -> None:
    await reset(client, timestamp=START)
    assert "g" not in server_of(broker).resets
    assert (await client.beat("late", group("g", t="*"))).code == 0
    assert (await pull(client, 5)).code == 0


async def test_clients_that_keep_their_offsets_are_pushed(client: RemotingClient, topic: None) -> None:
    alone = ConsumerGroup(
        name="g", subscriptions=(Subscription(topic="t", expression="*"),), message_model=BROADCASTING
    )
    assert (await client.beat("alone", alone)).code == 0
    assert (await client.pushed.get()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    await reset(client, timestamp=START + 3000)
    async with asyncio.timeout(DEADLINE):
        pushed = await client.pushed.get()
    assert pushed.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert (pushed.fields["group"], pushed.fields["topic"]) == ("g", "t")
    assert decode_offset_table(pushed.body) == {
        MessageQueue(topic="t", broker="posthouse", queue=0): 3,
        MessageQueue(topic="t", broker="posthouse", queue=1): 0,
    }
    assert (await pull(client, 5)).code == 0


async def test_consumers_that_do_not_pull_are_pushed(
    broker: AsyncBroker, client: RemotingClient, consumer: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have more messages than they can work on."""
    subscription = Subscription(topic="t", expression="*")
    lite = ConsumerGroup(name="g", subscriptions=(subscription,), consume_type=PULL)
    elsewhere = group("g", u="*")
    assert (await client.beat("lite", lite)).code == 0
    assert (await client.beat("elsewhere", elsewhere)).code == 0
    await reset(client, timestamp=START + 3000, queueId=0)
    server = server_of(broker)
    monkeypatch.setattr("posthouse.protocols.rocketmq.remoting.server._SWEEP_SECONDS", 0.0)
    server.sweep()
    monkeypatch.setattr(offset_resets, "OVERDUE_SECONDS", 0.0)
    server.sweep()
    async with asyncio.timeout(DEADLINE):
        while (pushed := await consumer.pushed.get()).code != RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            pass
    assert decode_offset_table(pushed.body) == {MessageQueue(topic="t", broker="posthouse", queue=0): 3}
    await commit(consumer, 9)
    assert await committed(client) == 3
    assert (await pull(consumer, 9)).code == 0  # it was under way
    await commit(consumer, 3)
    await commit(consumer, 4)
    assert await committed(client) == 4
    while not client.pushed.empty():
        assert client.pushed.get_nowait().code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def test_a_reset_that_is_not_stored_moves_nobody(
    broker: AsyncBroker, client: RemotingClient, consumer: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = broker.app.broker.groups.offsets
    before = offsets.get(GroupId("g"), broker.app.broker.topic("t").partition(0))

    def fail(puts: object) -> "asyncio.Future[object]":
        failed = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failed.set_exception, StorageFull("no space"))
        return failed

    monkeypatch.setattr(offsets, "_store", fail)
    waiting = await client.request(RESET, {"group": "g", "topic": "t", "timestamp": START})
    assert waiting.code == ResponseCode.SERVICE_NOT_AVAILABLE
    monkeypatch.undo()
    assert "g" not in server_of(broker).resets
    assert offsets.get(GroupId("g"), broker.app.broker.topic("t").partition(0)) == before
