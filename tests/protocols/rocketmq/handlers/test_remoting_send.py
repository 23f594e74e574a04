"""Sends: in all their forms, to topics that exist or not, at once or later, compressed or not."""

import asyncio
import time
import zlib

import lz4.frame
import pytest
import zstandard

from posthouse.broker.topics import NewTopic
from posthouse.listener_settings import Address
from posthouse.protocols.rocketmq import delays
from posthouse.protocols.rocketmq.codec.batch_bodies import BatchMessage, encode_batch
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue, QueueLocks, encode_queue_locks
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.message_ids import parse_message_id
from posthouse.protocols.rocketmq.codec.properties import encode_properties
from posthouse.protocols.rocketmq.codec.routes import decode_route
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, own_properties

ROCKETMQ = Address("127.0.0.1", 0)
ZLIB, LZ4, ZSTD = 1 | 3 << 8, 1 | 1 << 8, 1 | 2 << 8


@pytest.fixture
def short_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """All delays of levels but the longest are short."""
    monkeypatch.setattr(delays, "LEVELS", (*[300] * 17, delays.LEVELS[-1]))


async def all_messages(
    client: RemotingClient, topic: str, count: int, *, queue: int = 0
) -> list[StoredMessage]:
    """Waits for the first `count`."""
    found: list[StoredMessage] = []
    async with asyncio.timeout(DEADLINE):
        while len(found) < count:
            offset = found[-1].queue_offset + 1 if found else 0
            found += await client.messages(topic, offset, queue=queue, wait_ms=15_000, maxMsgNums=1000)
    return found


async def test_what_is_sent_is_pulled(client: RemotingClient) -> None:
    properties = {"KEYS": "k1 k2", "TAGS": "red", "UNIQ_KEY": "7F00000100002A9F0000000000000001", "own": "ä"}
    answer = await client.send("orders", b"hello", queue=2, properties=properties | {"WAIT": "true"}, h=7)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields["queueId"] == "2"
    assert answer.fields["queueOffset"] == "0"
    assert answer.fields["transactionId"] == properties["UNIQ_KEY"]
    [message] = await client.messages("orders", queue=2)
    assert message.message_id == answer.fields["msgId"]
    assert parse_message_id(message.message_id).host.port == client.writer.get_extra_info("peername")[1]
    assert own_properties(message) == properties
    assert (message.topic, message.queue, message.queue_offset) == ("orders", 2, 0)
    assert (message.body, message.flag, message.reconsume_times) == (b"hello", 7, 0)
    assert message.born_at == 1_700_000_000_123
    assert abs(message.stored_at - time.time() * 1000) < 60_000
    assert message.system_flags == 0


async def test_the_old_send_has_long_names(client: RemotingClient) -> None:
    fields: dict[str, str | int] = {
        "producerGroup": "p",
        "topic": "old",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 2,
        "queueId": 1,
        "sysFlag": 0,
        "bornTimestamp": 5,
        "flag": 3,
        "properties": "TAGS\x01red\x02",
        "reconsumeTimes": 0,
    }
    answer = await client.request(RequestCode.SEND_MESSAGE, fields, b"hello")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    [message] = await client.messages("old", queue=1)
    assert (message.body, message.flag, message.born_at) == (b"hello", 3, 5)


async def test_headers_in_binary(broker: AsyncBroker) -> None:
    async with client_of(broker, Serialization.BINARY) as client:
        assert (await client.send("binary", b"hello", properties={"a": "ä"})).code == 0
        [message] = await client.messages("binary")
        assert own_properties(message) == {"a": "ä"}


def batch_of(*bodies: bytes, **properties: str) -> bytes:
    text = encode_properties(properties)
    return encode_batch([BatchMessage(flag=0, body=body, properties=text) for body in bodies])


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize("flag", ["true", "1"])  # the latter of clients in C++
async def test_a_batch(client: RemotingClient, code: int, flag: str) -> None:
    fields = client.send_fields("batches", queue=1, m=flag)
    answer = await client.request(code, fields, batch_of(b"a", b"b", b"c", TAGS="red"))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = await client.messages("batches", queue=1)
    assert [each.body for each in found] == [b"a", b"b", b"c"]
    assert [each.message_id for each in found] == answer.fields["msgId"].split(",")
    assert [own_properties(each) for each in found] == [{"TAGS": "red"}] * 3
    assert answer.fields["queueOffset"] == "0"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no batch",
        batch_of(b"good") + b"rest",
        batch_of(b"good") + batch_of(b"late", DELAY="3"),
        batch_of(b"good") + batch_of(b"x" * (1024 * 1024)),
        batch_of(b"good") + batch_of(b"a", a="x" * 32_100),
    ],
    ids=["empty", "garbage", "cut", "delayed", "too large", "properties"],
)
async def test_a_batch_with_a_bad_message_is_refused_as_a_whole(client: RemotingClient, body: bytes) -> None:
    fields = client.send_fields("batches")
    answer = await client.request(RequestCode.SEND_BATCH_MESSAGE, fields, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert await client.offset(RequestCode.GET_MAX_OFFSET, "batches") == 0


async def test_oneway_sends_keep_their_order(client: RemotingClient) -> None:
    """While their topic is being created, and after that."""
    for number in range(2000):
        client.oneway(RequestCode.SEND_MESSAGE_V2, client.send_fields("new"), b"%d" % number)
        if number % 20 == 19:
            await asyncio.sleep(0)
    answer = await client.send("new", b"last")
    assert answer.fields["queueOffset"] == "2000"
    found = await all_messages(client, "new", 2001)
    assert [each.body for each in found] == [*(b"%d" % number for number in range(2000)), b"last"]


async def test_sends_while_a_slow_creation_ends(broker: AsyncBroker, client: RemotingClient) -> None:
    """Those that come when the topic exists already do not overtake those that wait for it."""
    real = broker.app.broker.create_topics
    is_created, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(topics: list[NewTopic]) -> object:
        found = await real(topics)
        is_created.set()
        await may_go_on.wait()
        return found

    broker.app.broker.create_topics = slow  # type: ignore[assignment]
    answers = [
        client.start(RequestCode.SEND_MESSAGE_V2, client.send_fields("new"), b"%d" % n) for n in range(3)
    ]
    await is_created.wait()
    assert broker.app.broker.topics.find("new") is not None
    answers += [
        client.start(RequestCode.SEND_MESSAGE_V2, client.send_fields("new"), b"%d" % n) for n in range(3, 6)
    ]
    await client.request(RequestCode.GET_MIN_OFFSET, {"topic": "new", "queueId": 0})
    may_go_on.set()
    async with asyncio.timeout(DEADLINE):
        assert [(await each).fields["queueOffset"] for each in answers] == [*"012345"]


async def test_new_topics(broker: AsyncBroker, client: RemotingClient) -> None:
    route = {"topic": "fresh"}
    assert (await client.request(105, route)).code == ResponseCode.TOPIC_NOT_EXIST
    [queues] = decode_route((await client.request(105, {"topic": "TBW102"})).body).queues
    assert (queues.read_queues, queues.write_queues, queues.permission) == (4, 4, 6)
    assert (await client.send("fresh", b"x", queue=-1, d=2)).code == 0
    found = decode_route((await client.request(105, route)).body)
    assert [each.read_queues for each in found.queues] == [2]
    assert [each.addresses for each in found.brokers] == [{0: broker.address("rocketmq")}]
    assert (await client.send("large", b"x", d=1_000_000)).code == 0
    topic = broker.app.broker.topics.find("large")
    assert topic is not None and topic.partitions == 1024
    assert (await client.send("small", b"x", d=-3)).code == 0
    assert (await client.send("small", b"x", queue=1)).code == ResponseCode.INVALID_PARAMETER


async def test_topics_are_not_created_where_that_is_off() -> None:
    async with (
        AsyncBroker(rocketmq=ROCKETMQ, auto_create_topics=False) as broker,
        client_of(broker) as client,
    ):
        for topic in ("TBW102", "fresh"):
            answer = await client.request(105, {"topic": topic})
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        answer = await client.send("fresh", b"x")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert "auto_create_topics" in (answer.remark or "")
        await broker.app.broker.create_topics([NewTopic(name="fresh", partitions=1)])
        assert (await client.send("fresh", b"x")).code == 0
        assert (await client.send("%RETRY%group", b"x")).code == 0
        assert (await client.send("%RETRY%group", b"x", j=17, l=16)).code == 0
        assert {each.name for each in broker.app.broker.topics} == {"fresh", ".RETRY.group", ".DLQ.group"}


@pytest.mark.parametrize(
    "name", ["", "a b", "a|b", "x" * 128, "TBW102", "SCHEDULE_TOPIC_XXXX", "..", "ä", ":internal"]
)
async def test_names_that_no_topic_can_have(broker: AsyncBroker, client: RemotingClient, name: str) -> None:
    assert (await client.send(name, b"x")).code == ResponseCode.INVALID_PARAMETER
    assert not list(broker.app.broker.topics)


@pytest.mark.parametrize(
    "properties",
    [
        lambda _: {"DELAY": "1"},
        lambda _: {"TIMER_DELAY_MS": "300"},
        lambda now: {"TIMER_DELIVER_MS": str(now + 300)},
    ],
    ids=["level", "ms", "time"],
)
async def test_a_delayed_message_comes_later(
    client: RemotingClient, short_levels: None, properties: object
) -> None:
    now = int(time.time() * 1000)
    wanted = properties(now)  # type: ignore[operator]
    answer = await client.send("later", b"late", properties=wanted | {"a": "b"})
    assert answer.code == 0, answer.remark
    assert (await client.send("later", b"now")).code == 0
    found = {each.body: each for each in await all_messages(client, "later", 2)}
    assert set(found) == {b"now", b"late"}
    assert found[b"late"].stored_at >= now + 290  # a busy machine may be later with the other one
    properties_of_late = own_properties(found[b"late"])
    assert int(properties_of_late.pop("TIMER_DELIVER_MS")) >= now + 300
    assert properties_of_late == {"a": "b"}
    assert own_properties(found[b"now"]) == {}


@pytest.mark.parametrize(
    "properties", [{"DELAY": "0"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELIVER_MS": "1000"}]
)
async def test_a_time_in_the_past_is_now(client: RemotingClient, properties: dict[str, str]) -> None:
    assert (await client.send("now", b"x", properties=properties)).code == 0
    assert await client.offset(RequestCode.GET_MAX_OFFSET, "now") == 1


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "soon"},
        {"DELAY": "-1"},
        {"DELAY": ""},
        {"TIMER_DELIVER_MS": "9" * 19},
        {"TIMER_DELAY_MS": "9" * 19},
        {"TIMER_DELAY_SEC": "9" * 19},
        {"TIMER_DELAY_MS": "9" * 5000},
        {"a": "x" * 32_000},
    ],
    ids=lambda properties: next(iter(properties)),
)
async def test_properties_that_are_refused(client: RemotingClient, properties: dict[str, str]) -> None:
    assert (await client.send("never", b"x", properties=properties)).code == ResponseCode.MESSAGE_ILLEGAL


async def test_large_properties(client: RemotingClient) -> None:
    properties = {f"p{number}": "ä" * 1000 for number in range(15)}
    assert (await client.send("large", b"x", properties=properties)).code == 0
    [message] = await client.messages("large")
    assert own_properties(message) == properties


BODY = b"hello " * 2000


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        (1, zlib.compress(BODY)),
        (ZLIB, zlib.compress(BODY)),
        (LZ4, lz4.frame.compress(BODY)),
        (ZSTD, zstandard.compress(BODY)),
    ],
    ids=["unsaid", "zlib", "lz4", "zstd"],
)
async def test_compressed_bodies_are_stored_plain(client: RemotingClient, flags: int, body: bytes) -> None:
    assert (await client.send("compressed", body, f=flags)).code == 0
    [message] = await client.messages("compressed")
    assert (message.body, message.system_flags) == (BODY, 0)


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        (ZLIB, zlib.compress(BODY)[:-5]),
        (ZLIB, BODY),
        (ZLIB, b""),
        (LZ4, lz4.frame.compress(BODY)[:-5]),
        (LZ4, BODY),
        (ZSTD, zstandard.compress(BODY)[:-5]),
        (ZSTD, BODY),
        (ZLIB, zlib.compress(bytes(20_000_000))),
        (LZ4, lz4.frame.compress(bytes(20_000_000))),
        (ZSTD, zstandard.compress(bytes(20_000_000))),
        (ZLIB, b"\x78\x9c" + b"\0\0\0\xff\xff" * 300_000),
    ],
    ids=lambda value: str(len(value)) if isinstance(value, bytes) else str(value),
)
async def test_damaged_bodies_and_bombs(client: RemotingClient, flags: int, body: bytes) -> None:
    answer = await client.send("compressed", body, f=flags)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert await client.offset(RequestCode.GET_MAX_OFFSET, "compressed") == 0


async def test_a_body_that_is_too_large(client: RemotingClient) -> None:
    assert (await client.send("large", bytes(1024 * 1024))).code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_compacted_topic_needs_keys(broker: AsyncBroker, client: RemotingClient) -> None:
    compacted = NewTopic(name="compacted", partitions=1, overrides={"cleanup.policy": "compact"})
    await broker.app.broker.create_topics([compacted])
    assert (await client.send("compacted", b"x")).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await client.send("compacted", b"x", properties={"KEYS": "k"})).code == 0


async def test_retries_that_the_client_sends_itself(client: RemotingClient, short_levels: None) -> None:
    """It does so when the broker could not do it by CONSUMER_SEND_MSG_BACK."""
    properties = {"RETRY_TOPIC": "orders", "DELAY": "1"}
    answer = await client.send("%RETRY%group", b"again", properties=properties, j=1, l=16)
    assert answer.code == 0
    [message] = await all_messages(client, "%RETRY%group", 1)
    assert message.reconsume_times == 1
    assert own_properties(message) == {"RETRY_TOPIC": "orders"}
    properties["DELAY"] = "18"  # which a dead letter does not wait for
    assert (await client.send("%RETRY%group", b"dead", properties=properties, j=4, l=3)).code == 0
    assert (await client.send("%RETRY%group", b"dead", properties=properties, j=17)).code == 0
    found = await all_messages(client, "%DLQ%group", 2)
    assert [each.reconsume_times for each in found] == [4, 17]


@pytest.mark.parametrize(
    "fields",
    [
        {"b": None},
        {"e": "x"},
        {"e": 4},
        {"h": 1 << 31},
        {"j": 1 << 40},
        {"g": "1" * 21},
        {"i": "a\x01b\x01c"},
    ],
)
async def test_fields_that_are_refused(client: RemotingClient, fields: dict[str, str | int | None]) -> None:
    wanted = {
        name: value for name, value in (client.send_fields("orders") | fields).items() if value is not None
    }
    answer: Command = await client.request(RequestCode.SEND_MESSAGE_V2, wanted, b"x")
    assert answer.code in (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.INVALID_PARAMETER,
    )
    assert answer.remark and "its log says why" not in answer.remark


async def test_the_last_retry_is_none_too_few(client: RemotingClient) -> None:
    assert (await client.send("%RETRY%group", b"last", j=16, l=16)).code == 0
    assert [each.body for each in await client.messages("%RETRY%group")] == [b"last"]


async def test_what_a_consumer_in_order_gives_up_is_a_dead_letter(client: RemotingClient) -> None:
    queue = MessageQueue(topic="orders", broker="posthouse", queue=0)
    locks = QueueLocks(group="group", client="c", queues=(queue,))
    assert (await client.request(RequestCode.LOCK_BATCH_MQ, None, encode_queue_locks(locks))).code == 0
    assert (await client.send("%RETRY%group", b"dead", properties={"DELAY": "6"}, j=3, l=3)).code == 0
    assert [each.body for each in await client.messages("%DLQ%group")] == [b"dead"]
    assert (await client.send("%RETRY%other", b"again", j=3, l=3)).code == 0
    assert [each.body for each in await client.messages("%RETRY%other")] == [b"again"]
