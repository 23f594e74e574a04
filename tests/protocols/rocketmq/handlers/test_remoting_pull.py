"""Pulls: what is found, what is waited for, and records of other protocols."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from posthouse.broker.topics import NewTopic
from posthouse.listener_settings import Address
from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.codec.codes import PullFlag, RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.heartbeats import SQL_EXPRESSION, ConsumerGroup, Subscription
from posthouse.protocols.rocketmq.codec.stored_messages import decode_stored_messages
from posthouse.protocols.rocketmq.messages import HEADER, LONGEST_PROPERTIES
from posthouse.protocols.rocketmq.remoting.connection import RemotingConnection
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.header_section import encode_section
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.remoting_client import (
    DEADLINE,
    RemotingClient,
    client_of,
    group,
    own_properties,
)

WAIT_MS = 30_000
ROCKETMQ = Address("127.0.0.1", 0)


def bodies(answer: Command) -> list[bytes]:
    return [each.body for each in decode_stored_messages(answer.body)]


def numbers(answer: Command) -> tuple[int, ...]:
    """Code, next offset, start and end."""
    names = ("nextBeginOffset", "minOffset", "maxOffset")
    return answer.code, *(int(answer.fields[name]) for name in names)


def connections_of(broker: AsyncBroker) -> list[RemotingConnection]:
    [listener] = [each.listener for each in broker.app._served if each.name == "rocketmq"]
    return [each for each in listener if isinstance(each, RemotingConnection)]


async def waiting(broker: AsyncBroker, count: int = 1) -> None:
    """Until so many pulls wait for records."""
    long_poll = broker.app.broker._long_poll
    async with asyncio.timeout(DEADLINE):
        while sum(map(len, long_poll._waiters.values())) != count:
            await asyncio.sleep(0.001)


async def send(client: RemotingClient, topic: str, *bodies: bytes, tag: str | None = None) -> None:
    properties = {} if tag is None else {"TAGS": tag}
    for body in bodies:
        assert (await client.send(topic, body, properties=properties, d=1)).code == 0


async def test_messages_are_found(client: RemotingClient) -> None:
    await send(client, "t", b"a", b"b", b"c")
    answer = await client.pull("t")
    assert numbers(answer) == (0, 3, 0, 3)
    assert answer.fields["suggestWhichBrokerId"] == "0"
    assert bodies(answer) == [b"a", b"b", b"c"]
    answer = await client.pull("t", 1, maxMsgNums=1)
    assert (numbers(answer), bodies(answer)) == ((0, 2, 0, 3), [b"b"])
    answer = await client.pull("t", 0, maxMsgBytes=2)
    assert (numbers(answer), bodies(answer)) == ((0, 2, 0, 3), [b"a", b"b"])
    answer = await client.request(RequestCode.LITE_PULL_MESSAGE, client.pull_fields("t", 2))
    assert (numbers(answer), bodies(answer)) == ((0, 3, 0, 3), [b"c"])


async def test_an_answer_is_not_much_larger_than_its_limit(client: RemotingClient) -> None:
    await send(client, "t", *[bytes(100_000)] * 10)
    answer = await client.pull("t")
    assert 1 < len(bodies(answer)) <= 3


async def test_a_subscription_in_the_pull(client: RemotingClient) -> None:
    await send(client, "t", b"r", tag="red")
    await send(client, "t", b"g", tag="green")
    await send(client, "t", b"n")
    assert bodies(await client.pull("t", subscription="red || blue")) == [b"r"]
    answer = await client.pull("t", subscription="TAGS = 'green'", expressionType="SQL92")
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"g"], "3")
    assert (await client.pull("t", expressionType="XPATH")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    answer = await client.pull("t", subscription="a = ", expressionType="SQL92")
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    answer = await client.pull("t", sysFlag=int(PullFlag.CLASS_FILTER))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_the_subscription_of_the_heartbeat(broker: AsyncBroker, client: RemotingClient) -> None:
    await send(client, "t", b"r", tag="red")
    await send(client, "t", b"g", tag="green")
    assert (await client.pull("t", sysFlag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert (await client.beat("one", group("group", t="red"))).code == 0
    assert bodies(await client.pull("t", sysFlag=0)) == [b"r"]
    assert (await client.pull("t", sysFlag=0, consumerGroup="other")).code == 24
    async with client_of(broker) as other:  # of the same group, with another subscription
        assert (await other.beat("two", group("group", t="green"))).code == 0
        assert bodies(await other.pull("t", sysFlag=0)) == [b"g"]
        assert bodies(await client.pull("t", sysFlag=0)) == [b"r"]
    by_sql = Subscription(topic="t", expression="TAGS = 'green'", expression_type=SQL_EXPRESSION)
    assert (await client.beat("one", ConsumerGroup(name="group", subscriptions=(by_sql,)))).code == 0
    assert bodies(await client.pull("t", sysFlag=0)) == [b"g"]


async def test_a_client_learns_how_far_it_has_come(client: RemotingClient) -> None:
    await send(client, "t", *[b"x"] * 50, tag="red")
    answer = await client.pull("t", subscription="blue", wait_ms=WAIT_MS)
    assert numbers(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 50, 0, 50)


async def test_offsets_that_are_not_there(broker: AsyncBroker, client: RemotingClient) -> None:
    await send(client, "t", *[b"x"] * 5)
    assert numbers(await client.pull("t", 6)) == (ResponseCode.PULL_OFFSET_MOVED, 5, 0, 5)
    assert numbers(await client.pull("t", 1 << 62)) == (ResponseCode.PULL_OFFSET_MOVED, 5, 0, 5)
    assert numbers(await client.pull("t", -1)) == (ResponseCode.PULL_OFFSET_MOVED, 0, 0, 5)
    topic = broker.app.broker.topic("t")
    await broker.app.broker.delete_records(topic, 0, 3)
    assert numbers(await client.pull("t", 2)) == (ResponseCode.PULL_OFFSET_MOVED, 3, 3, 5)
    assert numbers(await client.pull("t", 3)) == (0, 5, 3, 5)


async def test_nothing_is_found(client: RemotingClient) -> None:
    await send(client, "t", b"x")
    assert numbers(await client.pull("t", 1)) == (ResponseCode.PULL_NOT_FOUND, 1, 0, 1)
    assert numbers(await client.pull("t", 1, wait_ms=20)) == (ResponseCode.PULL_NOT_FOUND, 1, 0, 1)
    assert numbers(await client.pull("t", 1, wait_ms=-5)) == (ResponseCode.PULL_NOT_FOUND, 1, 0, 1)


async def test_what_there_is_none_of(client: RemotingClient) -> None:
    await send(client, "t", b"x")
    assert (await client.pull("none")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await client.pull("t", queue=1)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await client.pull("t", queue=-1)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await client.pull("a b")).code == ResponseCode.INVALID_PARAMETER
    assert (await client.pull("t", consumerGroup="")).code == ResponseCode.INVALID_PARAMETER


async def test_a_send_wakes_a_pull_that_waits(broker: AsyncBroker, client: RemotingClient) -> None:
    await send(client, "t", b"x")
    pulled = client.start(RequestCode.PULL_MESSAGE, client.pull_fields("t", 1, wait_ms=WAIT_MS))
    await waiting(broker)
    async with client_of(broker) as other:
        await send(other, "t", b"y")
    async with asyncio.timeout(DEADLINE / 2):
        assert bodies(await pulled) == [b"y"]


async def test_a_record_of_kafka_wakes_a_pull_that_waits(broker: AsyncBroker, client: RemotingClient) -> None:
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t")
        pulled = client.start(RequestCode.PULL_MESSAGE, client.pull_fields("t", wait_ms=WAIT_MS))
        await waiting(broker)
        await wire.produce(topic, batch(b"y"))
        async with asyncio.timeout(DEADLINE / 2):
            assert bodies(await pulled) == [b"y"]


async def test_messages_that_are_left_out_end_the_wait(broker: AsyncBroker, client: RemotingClient) -> None:
    await send(client, "t", b"x", tag="red")
    fields = client.pull_fields("t", 1, wait_ms=WAIT_MS, subscription="blue")
    pulled = client.start(RequestCode.PULL_MESSAGE, fields)
    await waiting(broker)
    await send(client, "t", b"y", tag="red")
    async with asyncio.timeout(DEADLINE / 2):
        assert numbers(await pulled) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2, 0, 2)


async def test_the_topic_is_deleted_while_a_pull_waits(broker: AsyncBroker, client: RemotingClient) -> None:
    await send(client, "t", b"x")
    pulled = client.start(RequestCode.PULL_MESSAGE, client.pull_fields("t", 1, wait_ms=WAIT_MS))
    await waiting(broker)
    await broker.app.broker.delete_topics([broker.app.broker.topic("t")])
    async with asyncio.timeout(DEADLINE / 2):
        assert (await pulled).code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_connection_is_closed_while_pulls_wait(broker: AsyncBroker, client: RemotingClient) -> None:
    await send(client, "t", b"x")
    other = await RemotingClient.open(broker.address("rocketmq"))
    assert (await other.beat("other", group("group", t="*"))).code == 0
    for _ in range(10):
        other.start(RequestCode.PULL_MESSAGE, client.pull_fields("t", 1, wait_ms=WAIT_MS))
    await waiting(broker, 10)
    [connection] = [each for each in connections_of(broker) if each._tasks]
    server = connection.server
    await other.close()
    await waiting(broker, 0)
    async with asyncio.timeout(DEADLINE):
        while len(connections_of(broker)) > 1 or connection._tasks:
            await asyncio.sleep(0.001)
    assert not server.clients._connections
    assert not server.clients._consumers


async def test_the_broker_stops_while_pulls_wait() -> None:
    async with AsyncBroker(rocketmq=ROCKETMQ) as broker:
        client = await RemotingClient.open(broker.address("rocketmq"))
        await send(client, "t", b"x")
        fields = client.pull_fields("t", 1, wait_ms=WAIT_MS)
        pulls = [client.start(RequestCode.PULL_MESSAGE, fields) for _ in range(3)]
        await waiting(broker, 3)
        started = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - started < 5
    assert [numbers(await each) for each in pulls] == [(ResponseCode.PULL_NOT_FOUND, 1, 0, 1)] * 3
    await client.ended()
    await client.close()


async def test_transactions_of_kafka(broker: AsyncBroker, client: RemotingClient) -> None:
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t")
        producer = TransactionalWire(wire, newer=True)
        await producer.init()
        await wire.produce(topic, batch(b"before"))
        await producer.write(b"open")
        await wire.produce(topic, batch(b"after"))
        answer = await client.pull("t")
        assert (numbers(answer), bodies(answer)) == ((0, 1, 0, 1), [b"before"])
        # Not beyond what is open: its records would never be seen.
        assert numbers(await client.pull("t", 9)) == (ResponseCode.PULL_OFFSET_MOVED, 1, 0, 1)
        pulled = client.start(RequestCode.PULL_MESSAGE, client.pull_fields("t", 1, wait_ms=WAIT_MS))
        await waiting(broker)
        await producer.end()
        async with asyncio.timeout(DEADLINE / 2):
            assert bodies(await pulled) == [b"open", b"after"]
        await producer.write(b"aborted")
        await producer.end(commit=False)
        answer = await client.pull("t", 4)
        assert numbers(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 6, 0, 6)
        await wire.produce(topic, batch(b"last"))
        answer = await client.pull("t", 3)
        assert [(each.queue_offset, each.body) for each in decode_stored_messages(answer.body)] == [
            (6, b"last")
        ]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
async def test_compressed_batches_of_kafka(broker: AsyncBroker, client: RemotingClient, codec: Codec) -> None:
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t")
        values = [b"value %d " % number * 20 for number in range(50)]
        await wire.produce(topic, batch(*values, codec=codec))
        assert bodies(await client.pull("t", maxMsgNums=100)) == values
        assert bodies(await client.pull("t", 30, maxMsgNums=5)) == values[30:35]


Headers = Sequence[tuple[bytes, bytes | None]]


async def produce(
    broker: AsyncBroker, value: bytes | None, headers: Headers = (), key: bytes | None = None
) -> None:
    """Without the checks of any client."""
    if broker.app.broker.topics.find("t") is None:
        await broker.app.broker.create_topics([NewTopic(name="t", partitions=1)])
    async with Wire(broker.kafka) as wire:
        builder = BatchBuilder()
        section = encode_section(headers)
        if value is None:
            builder.add(key, value, timestamp=1_700_000_000_000)
        else:
            builder.add_raw(key, value, section, 1_700_000_000_000)
        answer = await wire.produce(broker.app.broker.topic("t").id, builder.build())
        assert answer.error_code == 0


async def test_a_record_of_kafka_as_a_message(broker: AsyncBroker, client: RemotingClient) -> None:
    await produce(broker, b"value", [(b"TAGS", b"red"), (b"a", "ä".encode())], key=b"k")
    [message] = await client.messages("t", subscription="red")
    assert (message.body, message.born_at, message.stored_at) == (b"value", *[1_700_000_000_000] * 2)
    assert own_properties(message) == {"KEYS": "k", "TAGS": "red", "a": "ä"}


async def test_a_record_without_value(broker: AsyncBroker, client: RemotingClient) -> None:
    await produce(broker, None, key=b"k")
    [message] = await client.messages("t")
    assert (message.body, own_properties(message)) == (b"", {"KEYS": "k"})


FIXED = bytes(16)
HOST = bytes(8)
FOREIGN: dict[str, Headers] = {
    "separators": [(b"a", b"x\x01"), (b"b\x02", b"x"), (b"good", b"1")],
    "no text": [(b"a", b"\xff"), (b"\xff", b"x"), (b"good", b"1")],
    "no name": [(b"", b"x"), (b"good", b"1")],
    "no value": [(b"a", None), (b"good", b"1")],
    "too large": [(b"a", bytes(LONGEST_PROPERTIES)), (b"good", b"1")],
    "many": [(b"good", b"1"), *[(b"%d" % number, b"x" * 100) for number in range(2000)]],
    "of the broker": [(b"amqp.x", b"y"), (b"good", b"1")],
    "as if it were ours, short": [(b"good", b"1"), (HEADER, b"x")],
    "as if it were ours, null": [(b"good", b"1"), (HEADER, None)],
    "as if it were ours, separators": [(b"a", b"x\x01"), (b"good", b"1"), (HEADER, FIXED + HOST)],
    "as if it were ours, no name": [(b"", b"x"), (b"good", b"1"), (HEADER, FIXED + HOST)],
    "as if it were ours, no text": [(b"\xc3", b"\xa9"), (b"good", b"1"), (HEADER, FIXED + HOST)],
    "as if it were ours, too large": [(b"a", b"x" * 50_000), (b"good", b"1"), (HEADER, FIXED + HOST)],
    "as if it were ours, odd host": [(b"good", b"1"), (HEADER, FIXED + b"\xff" * 8)],
    "as if it were ours, short host": [(b"good", b"1"), (HEADER, FIXED + b"\xff")],
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
async def test_headers_that_rocketmq_cannot_have(
    broker: AsyncBroker, client: RemotingClient, headers: Headers
) -> None:
    """They neither stop the queue nor reach a client."""
    await produce(broker, b"x", headers)
    [message] = await client.messages("t")
    assert own_properties(message)["good"] == "1"
    assert message.born_host == HOST
    assert len(message.properties) < 1 << 15


async def test_a_commit_with_the_pull(broker: AsyncBroker, client: RemotingClient) -> None:
    await send(client, "t", *[b"x"] * 5)
    flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
    await client.pull("t", 3, sysFlag=int(flags), commitOffset=2)
    assert await client.offset(RequestCode.QUERY_CONSUMER_OFFSET, "t", consumerGroup="group") == 2
    await client.pull("t", 3, sysFlag=int(flags), commitOffset=-1)
    assert await client.offset(RequestCode.QUERY_CONSUMER_OFFSET, "t", consumerGroup="group") == 2


async def test_a_commit_with_the_pull_that_fails(
    broker: AsyncBroker, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic is deleted meanwhile: the log says so once, and nothing breaks."""
    await send(client, "t", b"x")
    topic = broker.app.broker.topic("t")
    pulled = client.start(
        RequestCode.PULL_MESSAGE,
        client.pull_fields(
            "t", 0, sysFlag=int(PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET), commitOffset=1
        ),
    )
    deleted = asyncio.ensure_future(broker.app.broker.delete_topics([topic]))
    with caplog.at_level(logging.WARNING):
        await pulled
        await deleted
    group_offsets = broker.app.broker.groups.offsets
    assert group_offsets.get(GroupId("group"), topic.partition(0)) is None


async def test_a_client_that_pulls_and_does_not_read() -> None:
    """Its pulls read one after the other, and only while it takes what it is sent."""
    async with AsyncBroker(rocketmq=ROCKETMQ, connection_buffer_bytes=512 * 1024) as broker:
        async with client_of(broker) as sender:
            await send(sender, "t", *[bytes(200_000)] * 5)
        client = await RemotingClient.open(broker.address("rocketmq"))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        pulls = [client.start(RequestCode.PULL_MESSAGE, client.pull_fields("t", 0)) for _ in range(150)]
        async with asyncio.timeout(DEADLINE):
            while not (made := connections_of(broker)) or not made[0]._flow.is_paused:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
        [connection] = made
        assert connection._flow.outbox.unsent < 4 * 1024 * 1024
        assert connection._calls > 10
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(DEADLINE):
            assert {len(bodies(await each)) for each in pulls} == {1}
        await client.close()


async def test_pulls_that_wait_count(broker: AsyncBroker) -> None:
    """Each waits with all of its fields."""
    async with AsyncBroker(rocketmq=ROCKETMQ, connection_buffer_bytes=512 * 1024) as small:
        async with client_of(small) as sender:
            await send(sender, "t", b"x")
        client = await RemotingClient.open(small.address("rocketmq"))
        fields = client.pull_fields("t", 1, wait_ms=WAIT_MS, x="y" * 20_000)
        pulls = [client.start(RequestCode.PULL_MESSAGE, fields) for _ in range(100)]
        async with asyncio.timeout(DEADLINE):
            while not (made := connections_of(small)) or not made[0]._flow.is_paused:
                await asyncio.sleep(0.001)
        assert made[0]._calls < 50
        async with client_of(small) as sender:
            await send(sender, "t", b"y")
        async with asyncio.timeout(DEADLINE):
            assert [bodies(await each) for each in pulls] == [[b"y"]] * 100
        assert not made[0]._flow.is_paused
        await client.close()
