"""Messages that consumers send back: retries, their counts and delays, and dead letters."""

import asyncio

import pytest

from posthouse.broker.topics import NewTopic
from posthouse.protocols.rocketmq import delays
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, own_properties

BACK = RequestCode.CONSUMER_SEND_MSG_BACK


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """All delays of levels are short."""
    monkeypatch.setattr(delays, "LEVELS", (1,) * len(delays.LEVELS))


async def send_back(client: RemotingClient, message: StoredMessage, **changed: str | int) -> Command:
    fields: dict[str, str | int] = {
        "offset": message.position,
        "group": "g",
        "delayLevel": 0,
        "originMsgId": message.message_id,
        "originTopic": message.topic,
        "unitMode": "false",
        "maxReconsumeTimes": 16,
    }
    return await client.request(BACK, fields | changed)


async def pulled(client: RemotingClient, topic: str, offset: int = 0) -> StoredMessage:
    """The message at the offset, as soon as it is there."""
    async with asyncio.timeout(DEADLINE):
        while True:
            answer = await client.pull(topic, offset, wait_ms=15_000, maxMsgNums=1)
            if answer.code == 0:
                [message] = await client.messages(topic, offset, maxMsgNums=1)
                return message
            await asyncio.sleep(0.001)


async def first(client: RemotingClient, topic: str = "t") -> StoredMessage:
    properties = {"KEYS": "k", "TAGS": "red", "own": "1"}
    assert (await client.send(topic, b"hello", queue=1, properties=properties, h=5)).code == 0
    [message] = await client.messages(topic, queue=1)
    return message


async def test_a_message_comes_again(client: RemotingClient, soon: None) -> None:
    message = await first(client)
    assert (await send_back(client, message)).code == 0
    again = await pulled(client, "%RETRY%g")
    assert (again.body, again.reconsume_times, again.flag) == (b"hello", 1, 5)
    assert (again.born_at, again.born_host) == (message.born_at, message.born_host)
    assert own_properties(again) == {
        "KEYS": "k",
        "TAGS": "red",
        "own": "1",
        "RETRY_TOPIC": "t",
        "ORIGIN_MESSAGE_ID": message.message_id,
    }
    # Clients show the original topic, and send that back.
    assert (await send_back(client, again, originTopic="t")).code == 0
    third = await pulled(client, "%RETRY%g", 1)
    assert third.reconsume_times == 2
    assert own_properties(third) == own_properties(again)


async def test_in_the_end_it_is_a_dead_letter(client: RemotingClient, soon: None) -> None:
    message = await first(client)
    for count in range(3):
        assert (await send_back(client, message, maxReconsumeTimes=3)).code == 0
        message = await pulled(client, "%RETRY%g", count)
        assert message.reconsume_times == count + 1
    assert (await send_back(client, message, maxReconsumeTimes=3)).code == 0
    dead = await pulled(client, "%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"hello", 4)
    assert own_properties(dead)["RETRY_TOPIC"] == "t"


async def test_a_dead_letter_at_once(client: RemotingClient) -> None:
    message = await first(client)
    assert (await send_back(client, message, delayLevel=-1)).code == 0
    assert (await pulled(client, "%DLQ%g")).reconsume_times == 1
    assert (await send_back(client, message, maxReconsumeTimes=0)).code == 0
    assert (await pulled(client, "%DLQ%g", 1)).reconsume_times == 1


@pytest.mark.parametrize(("level", "count", "expected"), [(0, 0, 10_000), (0, 15, 7_200_000), (1, 3, 1000)])
async def test_how_long_it_takes(
    broker: AsyncBroker,
    client: RemotingClient,
    monkeypatch: pytest.MonkeyPatch,
    level: int,
    count: int,
    expected: int,
) -> None:
    delayed = broker.app.broker.delayed_records
    found: list[int] = []

    def add(*values: object) -> None:
        due, stored = values[5:]
        assert isinstance(due, int) and callable(stored)
        found.append(due - broker.app.broker.now_ms())
        stored(None)

    monkeypatch.setattr(type(delayed), "add", lambda _, *values: add(*values))
    await client.send("t", b"x", j=count)
    [message] = await client.messages("t")
    assert (await send_back(client, message, delayLevel=level)).code == 0
    assert expected - 5000 < found[0] <= expected


async def test_retries_of_several_topics_and_groups(client: RemotingClient, soon: None) -> None:
    one, two = await first(client, "one"), await first(client, "two")
    assert (await send_back(client, one)).code == 0
    assert (await send_back(client, two, group="h")).code == 0
    assert own_properties(await pulled(client, "%RETRY%g"))["RETRY_TOPIC"] == "one"
    assert own_properties(await pulled(client, "%RETRY%h"))["RETRY_TOPIC"] == "two"


async def test_a_record_of_kafka(broker: AsyncBroker, client: RemotingClient, soon: None) -> None:
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t")
        await wire.produce(topic, batch(b"a", b"b", b"c"))
    message = (await client.messages("t"))[1]
    assert (await send_back(client, message)).code == 0
    assert (await pulled(client, "%RETRY%g")).body == b"b"


async def test_messages_that_are_gone(broker: AsyncBroker, client: RemotingClient) -> None:
    message = await first(client)
    engine = broker.app.broker
    answer = await send_back(client, message, offset=message.position + 1)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no message at offset 1" in (answer.remark or "")
    await engine.delete_records(engine.topic("t"), 1, 1)
    assert (await send_back(client, message)).code == ResponseCode.SYSTEM_ERROR
    assert (await send_back(client, message, originTopic="none")).code == ResponseCode.TOPIC_NOT_EXIST
    await engine.delete_topics([engine.topic("t")])
    assert (await send_back(client, message)).code == ResponseCode.TOPIC_NOT_EXIST
    await engine.create_topics([NewTopic(name="t", partitions=1)])
    assert (await send_back(client, message)).code == ResponseCode.TOPIC_NOT_EXIST  # it has one queue
    assert (await send_back(client, message, offset=1 << 62)).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    "changed",
    [
        {"offset": -1},
        {"offset": "x"},
        {"offset": 1 << 70},
        {"group": ""},
        {"group": "a b"},
        {"delayLevel": "x"},
        {"maxReconsumeTimes": "x"},
        {"originTopic": "a b"},
    ],
    ids=str,
)
async def test_fields_that_are_refused(client: RemotingClient, changed: dict[str, str | int]) -> None:
    message = await first(client)
    answer = await send_back(client, message, **changed)
    assert answer.code in (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.INVALID_PARAMETER,
    )
    assert "its log says why" not in (answer.remark or "")


@pytest.mark.parametrize(
    "changed",
    [
        {"originMsgId": "x" * 40_000},
        {"originMsgId": "a\x01b\x02"},
        {"originMsgId": ""},
        {"maxReconsumeTimes": 1 << 40},
        {"maxReconsumeTimes": -1},
        {"delayLevel": 1 << 40},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_odd_fields_do_not_stop_the_queue(
    client: RemotingClient, soon: None, changed: dict[str, str | int]
) -> None:
    message = await first(client)
    assert (await send_back(client, message, **changed)).code == 0
    assert (await pulled(client, "%RETRY%g")).body == b"hello"


async def test_odd_origins_of_a_retry_do_not_stop_the_queue(client: RemotingClient, soon: None) -> None:
    """The topic of the message is known by its position then, and the field only becomes a property."""
    assert (await client.send("%RETRY%g", b"x")).code == 0
    message = await pulled(client, "%RETRY%g")
    for origin in ("a\x01b\x02", "x" * 40_000):
        answer = await send_back(client, message, originTopic=origin)
        assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (await send_back(client, message, originTopic="")).code == 0
    assert (await pulled(client, "%RETRY%g", 1)).properties.startswith("ORIGIN_MESSAGE_ID")


async def test_as_many_times_as_there_are(client: RemotingClient, soon: None) -> None:
    most = (1 << 31) - 1
    await client.send("t", b"x", j=most)
    [message] = await client.messages("t")
    assert (await send_back(client, message, maxReconsumeTimes=1 << 40)).code == 0
    assert (await pulled(client, "%RETRY%g")).reconsume_times == most


async def test_the_client_goes_away_meanwhile(
    broker: AsyncBroker, client: RemotingClient, soon: None
) -> None:
    message = await first(client)
    async with client_of(broker) as other:
        other.oneway(BACK, {"offset": message.position, "group": "g", "originTopic": "t"})
        other.start(BACK, {"offset": message.position, "group": "g", "originTopic": "t"})
        await other.writer.drain()
    assert (await client.send("t", b"x")).code == 0
