"""SendMessage: what is stored of messages, and which are refused."""

import gzip
from typing import Any

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Digest
from posthouse.protocols.rocketmq.grpc.messages.enums import DigestType, Encoding, MessageType
from posthouse.protocols.rocketmq.grpc.messages.service import SendMessageRequest
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT, StillBroker, client_of
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient, bodies, system
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of
from tests.protocols.rocketmq.remoting_client import own_properties

LIMIT = 1024 * 1024
"""Of a batch in a new topic."""


async def test_a_message_comes_as_it_was_sent(client: MessagingClient) -> None:
    answer = await client.send(
        "orders",
        "größer".encode(),
        properties={"tenant": "blåu"},
        tag="paid",
        keys=("4711", "4712"),
        message_id="01ABCDEF",
        trace_context="trace",
        born_timestamp=Timestamp.from_ms(1_700_000_000_123),
    )
    [entry] = answer.entries
    assert (entry.message_id, entry.offset, entry.transaction_id) == ("01ABCDEF", 0, "")
    [message] = await client.receive("orders")
    found = system(message)
    assert (message.body, message.user_properties) == ("größer".encode(), {"tenant": "blåu"})
    assert message.topic is not None and message.topic.name == "orders"
    assert (found.tag, found.keys, found.message_id) == ("paid", ("4711", "4712"), "01ABCDEF")
    assert (found.trace_context, found.message_type) == ("trace", MessageType.NORMAL)
    assert found.born_timestamp == Timestamp.from_ms(1_700_000_000_123)
    assert found.body_encoding == Encoding.IDENTITY
    assert found.store_timestamp is not None and found.store_timestamp.ms > 1_700_000_000_123
    assert found.born_host.startswith("127.0.0.1:") and found.store_host.startswith("127.0.0.1:")


async def test_digests(client: MessagingClient) -> None:
    """Clients compare them as texts."""
    checksum = "A9993E364706816ABA3E25717850C26C9CD0D89D"
    await client.send("orders", b"abc")
    [message] = await client.receive("orders")
    assert system(message).body_digest == Digest(type=DigestType.SHA1, checksum=checksum)


async def test_clients_of_remoting_read_it(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send(
        "orders", b"v", properties={"a": "b"}, tag="red", keys=("k",), message_id="ID", message_group="g"
    )
    async with remoting_client_of(broker) as remoting:
        found = [
            message
            for queue in range(4)
            if (await remoting.pull("orders", queue=queue)).code == 0
            for message in await remoting.messages("orders", queue=queue)
        ]
    [message] = found
    assert (message.body, own_properties(message)) == (
        b"v",
        {"a": "b", "TAGS": "red", "KEYS": "k", "UNIQ_KEY": "ID", "__SHARDINGKEY": "g"},
    )


async def test_messages_of_a_group_share_a_queue(client: MessagingClient) -> None:
    for number in range(8):
        await client.send("orders", b"%d" % number, message_group="g", message_type=MessageType.FIFO)
    messages = await client.receive("orders")
    assert len({system(each).queue_id for each in messages}) == 1
    assert [each.body for each in messages] == [b"%d" % number for number in range(8)]
    assert {system(each).message_group for each in messages} == {"g"}
    assert {system(each).message_type for each in messages} == {MessageType.FIFO}


async def test_the_messages_of_a_request_are_spread(broker: AsyncBroker, client: MessagingClient) -> None:
    answer = await client.send("orders", *(b"%d" % number for number in range(8)))
    assert [entry.offset for entry in answer.entries].count(0) == 4
    topic = broker.app.broker.topic("orders")
    assert [broker.app.broker.bounds(topic, each).end for each in range(topic.partitions)] == [2] * 4


async def test_bodies_are_stored_as_they_were_before_gzip(client: MessagingClient) -> None:
    packed = gzip.compress(b"0123456789" * 1000)
    await client.send("orders", packed, body_encoding=Encoding.GZIP)
    [message] = await client.receive("orders")
    assert message.body == b"0123456789" * 1000
    assert system(message).body_encoding == Encoding.IDENTITY


async def test_a_delayed_message(still: StillBroker) -> None:
    async with client_of(still) as client:
        due = Timestamp.from_ms(still.clock.now_ms() + 90_000)
        answer = await client.send("orders", b"later", delivery_timestamp=due, message_type=MessageType.DELAY)
        assert answer.entries[0].offset == 0
        past = Timestamp.from_ms(still.clock.now_ms() - 1)
        await client.send("orders", b"now", delivery_timestamp=past, message_type=MessageType.DELAY)
        [now] = await client.receive("orders")
        assert now.body == b"now"
        assert await client.ack("orders", now) == Code.OK
        await still.advance(91)
        assert bodies(await client.receive("orders", wait=20)) == [b"later"]


async def test_results_of_a_request_differ(client: MessagingClient) -> None:
    never = Timestamp(seconds=1 << 52)
    answer = await client.send_all(
        client.message("orders", b"good"), client.message("orders", b"never", delivery_timestamp=never)
    )
    assert answer.status is not None
    assert answer.status.code == Code.MULTIPLE_RESULTS
    codes = [each.status.code for each in answer.entries if each.status is not None]
    assert codes == [Code.OK, Code.ILLEGAL_DELIVERY_TIME]
    assert bodies(await client.receive("orders")) == [b"good"]
    assert await client.refused("orders", delivery_timestamp=never) == Code.ILLEGAL_DELIVERY_TIME


NAMES: dict[str, str] = {f"name{number}": "" for number in range(129)}
BOMB = gzip.compress(bytes(LIMIT + 1))
REFUSED: dict[str, tuple[Code, dict[str, Any]]] = {
    "no body": (Code.MESSAGE_BODY_EMPTY, {"body": b""}),
    "a large body": (Code.MESSAGE_BODY_TOO_LARGE, {"body": bytes(LIMIT)}),
    "no id": (Code.ILLEGAL_MESSAGE_ID, {"message_id": ""}),
    "a long id": (Code.ILLEGAL_MESSAGE_ID, {"message_id": "1" * 257}),
    "an id with separators": (Code.ILLEGAL_MESSAGE_ID, {"message_id": "a\x01b"}),
    "a blank tag": (Code.ILLEGAL_MESSAGE_TAG, {"tag": " "}),
    "two tags": (Code.ILLEGAL_MESSAGE_TAG, {"tag": "a|b"}),
    "a tag with separators": (Code.ILLEGAL_MESSAGE_TAG, {"tag": "a\x02b"}),
    "a blank key": (Code.ILLEGAL_MESSAGE_KEY, {"keys": ("good", " ")}),
    "a key with a control character": (Code.ILLEGAL_MESSAGE_KEY, {"keys": ("a\nb",)}),
    "an empty message group": (Code.ILLEGAL_MESSAGE_GROUP, {"message_group": ""}),
    "a long message group": (Code.ILLEGAL_MESSAGE_GROUP, {"message_group": "ü" * 32}),
    "a message group with separators": (Code.ILLEGAL_MESSAGE_GROUP, {"message_group": "a\x01"}),
    "a property without name": (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"properties": {"": "v"}}),
    "a property of the broker": (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"properties": {"TAGS": "v"}}),
    "a property with separators": (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"properties": {"a": "\x02"}}),
    "a name with separators": (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"properties": {"\x02": "a"}}),
    "many properties": (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"properties": NAMES}),
    "large properties": (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"properties": {"a": "v" * 16 * 1024}}),
    "no gzip": (Code.MESSAGE_CORRUPTED, {"body": b"plain", "body_encoding": Encoding.GZIP}),
    "half of gzip": (
        Code.MESSAGE_CORRUPTED,
        {"body": gzip.compress(b"v" * 1000)[:-9], "body_encoding": Encoding.GZIP},
    ),
    "a gzip bomb": (Code.MESSAGE_BODY_TOO_LARGE, {"body": BOMB, "body_encoding": Encoding.GZIP}),
    "a lite topic": (Code.UNSUPPORTED, {"lite_topic": "lite", "message_type": MessageType.LITE}),
    "a negative priority": (Code.BAD_REQUEST, {"priority": -1}),
    "no priority": (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, {"message_type": MessageType.PRIORITY}),
    "a priority and a message group": (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        {"priority": 1, "message_group": "g"},
    ),
    "a delayed message with a priority": (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        {"priority": 1, "delivery_timestamp": Timestamp(seconds=1)},
    ),
    "a half message with a priority": (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        {"priority": 1, "message_type": MessageType.TRANSACTION},
    ),
    "a delayed half message": (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        {"message_type": MessageType.TRANSACTION, "delivery_timestamp": Timestamp(seconds=1)},
    ),
    "an ordered half message": (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        {"message_type": MessageType.TRANSACTION, "message_group": "g"},
    ),
}


async def test_what_is_refused(client: MessagingClient) -> None:
    """With nothing stored."""
    await client.send("orders", b"first")
    found = {name: await client.refused("orders", **given) for name, (_, given) in REFUSED.items()}
    assert found == {name: code for name, (code, _) in REFUSED.items()}
    for _, given in REFUSED.values():
        message = client.message("orders", **{"body": b"v", **given})
        answer = await client.send_all(client.message("orders", b"good"), message)
        assert answer.status is not None and answer.status.code != Code.OK and not answer.entries
    assert bodies(await client.receive("orders")) == [b"first"]


async def test_requests_that_are_refused(client: MessagingClient) -> None:
    assert await client.code(SendMessageRequest()) == Code.BAD_REQUEST
    many = tuple(client.message("orders", b"v") for _ in range(1025))
    assert await client.code(SendMessageRequest(messages=many)) == Code.BAD_REQUEST
    two = client.message("orders", b"v"), client.message("others", b"v")
    assert await client.code(SendMessageRequest(messages=two)) == Code.BAD_REQUEST
    for name in ("", "a b", "x" * 200, "TBW102", "SCHEDULE_TOPIC_XXXX"):
        assert await client.refused(name) == Code.ILLEGAL_TOPIC, name


async def test_user_properties_at_the_limit(client: MessagingClient) -> None:
    properties = {f"name{number:03}": "v" * 121 for number in range(128)}
    await client.send("orders", properties=properties)
    [message] = await client.receive("orders")
    assert message.user_properties == properties


async def test_a_topic_is_not_created() -> None:
    async with (
        AsyncBroker(rocketmq_grpc=ANY_PORT, auto_create_topics=False) as broker,
        client_of(broker) as client,
    ):
        assert await client.refused("orders") == Code.TOPIC_NOT_FOUND


async def test_namespaces(broker: AsyncBroker) -> None:
    async with client_of(broker, namespace="shop") as client, client_of(broker, "other") as other:
        await client.send("orders", b"of the shop")
        await other.send("orders", b"of nobody")
        assert broker.app.broker.topic("shop.orders").partitions == 4
        [message] = await client.receive("orders")
        assert message.body == b"of the shop"
        assert message.topic is not None
        assert (message.topic.resource_namespace, message.topic.name) == ("shop", "orders")
        assert await client.ack("orders", message) == Code.OK
        assert bodies(await other.receive("orders")) == [b"of nobody"]


async def test_how_long_a_recovery_may_take_is_bounded(client: MessagingClient) -> None:
    for duration in (Duration(seconds=-5), Duration(seconds=(1 << 63) - 1), Duration()):
        await client.send(
            "orders",
            message_type=MessageType.TRANSACTION,
            orphaned_transaction_recovery_duration=duration,
        )
