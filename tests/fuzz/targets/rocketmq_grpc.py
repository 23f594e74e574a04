"""RocketMQ's gRPC messages: any bytes as any message that a peer sends."""

from collections.abc import Iterator
from typing import Final

from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Digest,
    FilterExpression,
    Message,
    MessageQueue,
    OffsetOption,
    Resource,
    Status,
    SubscriptionEntry,
    SystemProperties,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType
from posthouse.protocols.rocketmq.grpc.messages.errors import MalformedMessage
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import (
    RPCS,
    AckMessageEntry,
    AckMessageRequest,
    PullMessageResponse,
    SendMessageRequest,
    SyncLiteSubscriptionRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    ExponentialBackoff,
    RetryPolicy,
    Settings,
    Subscription,
    TelemetryCommand,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from tests.fuzz.target import Target

_KINDS: Final[tuple[type[ProtoMessage], ...]] = tuple(
    {kind: None for rpc in RPCS for kind in (rpc.request, rpc.response)}
)


def message(data: bytes) -> None:
    """The first byte chooses the message. What is read can be written, and is read again as it was."""
    if not data:
        return
    kind = _KINDS[data[0] % len(_KINDS)]
    try:
        read = kind.decode(data[1:])
    except MalformedMessage:
        return
    written = read.encode()
    assert kind.decode(written).encode() == written
    assert repr(kind.decode(written)) == repr(read)  # NaN is not equal to itself


def _seed(value: ProtoMessage, more: bytes = b"") -> bytes:
    return bytes((_KINDS.index(type(value)),)) + value.encode() + more


def _seeds() -> Iterator[bytes]:
    topic = Resource(resource_namespace="n", name="t")
    properties = SystemProperties(
        tag="a",
        keys=("k1", "k2"),
        body_digest=Digest(type=1, checksum="0"),
        born_timestamp=Timestamp.from_ms(1_700_000_000_123),
        queue_offset=-1,
        invisible_duration=Duration.from_ms(-1),
        priority=-1,
    )
    sent = Message(topic=topic, user_properties={"a": "b", "c": ""}, system_properties=properties, body=b"x")
    yield _seed(SendMessageRequest(messages=(sent, Message())))
    yield _seed(
        AckMessageRequest(group=topic, entries=(AckMessageEntry(message_id="m", lite_topic=""),)),
        b"\x0a\x03\x12\x01a\x7a\x01x\x7d\x00\x00\x00\x00",
    )
    yield _seed(PullMessageResponse(status=Status(code=20000)), b"\x18\x05\x0a\x00\x0a\x02\x08\x01")
    subscription = Subscription(
        group=topic,
        subscriptions=(
            SubscriptionEntry(topic=topic, expression=FilterExpression(type=2, expression="a > 1")),
        ),
        fifo=False,
    )
    backoff = RetryPolicy(max_attempts=3, exponential_backoff=ExponentialBackoff(multiplier=2.0))
    settings = Settings(client_type=2, backoff_policy=backoff, subscription=subscription)
    yield _seed(TelemetryCommand(status=Status(code=20000, message="ok"), settings=settings))
    yield _seed(SyncLiteSubscriptionRequest(lite_topic_set=("a", "b"), offset_option=OffsetOption(tail_n=5)))
    queue = MessageQueue(topic=topic, id=-1, accept_message_types=tuple(MessageType))
    routes = next(rpc.response for rpc in RPCS if rpc.name == "QueryRoute")
    yield bytes((_KINDS.index(routes),)) + b"\x12" + bytes((len(queue.encode()),)) + queue.encode()


TARGETS = (Target(name="rocketmq-grpc-message", run=message, seeds=_seeds),)
