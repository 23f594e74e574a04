"""`python -m bench.rocketmq_grpc_codec`: RocketMQ's gRPC messages, by our codec and by the protobuf library.

Both do what a handler does: read the fields that it needs, and make the answer. The library (upb) makes
Python values when they are asked for: its rows that only decode or encode are without them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rocketmq.grpc_protocol import definition_pb2, service_pb2

from bench.rocketmq_codec import microseconds
from posthouse.protocols.rocketmq.grpc.messages import definition, service
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Digest,
    Message,
    MessageQueue,
    Resource,
    Status,
    SystemProperties,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import ClientType, DigestType, Encoding, MessageType
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    HeartbeatRequest,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp

BODY: Final = bytes(1024)
MESSAGE_ID: Final = "01" + "A0B1C2D3E4F5" + "0102" + "0A0B0C0D" + "00000001"
HANDLE: Final = "orders-3-0000000000004711-0000000017-7f3a"
TOPIC: Final = Resource(name="orders")
GROUP: Final = Resource(name="billing")

SENT: Final = SendMessageRequest(
    messages=(
        Message(
            topic=TOPIC,
            user_properties={"customer": "4711"},
            system_properties=SystemProperties(
                tag="TagA",
                keys=("order-4711",),
                message_id=MESSAGE_ID,
                body_encoding=Encoding.IDENTITY,
                message_type=MessageType.NORMAL,
                born_timestamp=Timestamp(seconds=1_700_000_000, nanos=123_456_000),
                born_host="producer-1.example",
            ),
            body=BODY,
        ),
    )
)
TAKEN: Final = SystemProperties(
    tag="TagA",
    keys=("order-4711",),
    message_id=MESSAGE_ID,
    body_digest=Digest(type=DigestType.CRC32, checksum="3610A686"),
    body_encoding=Encoding.IDENTITY,
    message_type=MessageType.NORMAL,
    born_timestamp=Timestamp(seconds=1_700_000_000, nanos=123_456_000),
    born_host="producer-1.example",
    store_timestamp=Timestamp(seconds=1_700_000_000, nanos=124_000_000),
    store_host="127.0.0.1:8081",
    receipt_handle=HANDLE,
    queue_id=3,
    queue_offset=4711,
    invisible_duration=Duration(seconds=60),
    delivery_attempt=1,
)
RECEIVED: Final = ReceiveMessageResponse(
    message=Message(topic=TOPIC, user_properties={"customer": "4711"}, system_properties=TAKEN, body=BODY)
)
RECEIVE: Final = ReceiveMessageRequest(
    group=GROUP,
    message_queue=MessageQueue(topic=TOPIC, id=3),
    filter_expression=definition.FilterExpression(type=1, expression="*"),
    batch_size=32,
    auto_renew=True,
    long_polling_timeout=Duration(seconds=20),
    attempt_id="8f2b5a52-5a35-4ad0-8a0c-000000000001",
)
ACK: Final = AckMessageRequest(
    group=GROUP, topic=TOPIC, entries=(AckMessageEntry(message_id=MESSAGE_ID, receipt_handle=HANDLE),)
)
HEARTBEAT: Final = HeartbeatRequest(group=GROUP, client_type=ClientType.PUSH_CONSUMER)


def our_send(data: bytes) -> bytes:
    for message in SendMessageRequest.decode(data).messages:
        properties = message.system_properties
        assert message.topic is not None
        assert properties is not None
        assert message.topic.name and message.user_properties and message.body
        assert properties.born_timestamp is not None and properties.born_timestamp.ms
        assert properties.tag and properties.keys and properties.message_type and properties.born_host
    ok = Status(code=Code.OK, message="OK")
    entry = SendResultEntry(status=ok, message_id=MESSAGE_ID, transaction_id="", offset=4711)
    return SendMessageResponse(status=ok, entries=(entry,)).encode()


def their_send(data: bytes) -> bytes:
    for message in service_pb2.SendMessageRequest.FromString(data).messages:
        properties = message.system_properties
        assert message.topic.name and dict(message.user_properties) and message.body
        assert properties.born_timestamp.ToMilliseconds()
        assert properties.tag and list(properties.keys) and properties.message_type and properties.born_host
        assert properties.message_id
    ok = definition_pb2.Status(code=20000, message="OK")
    entry = service_pb2.SendResultEntry(status=ok, message_id=MESSAGE_ID, transaction_id="", offset=4711)
    answer: bytes = service_pb2.SendMessageResponse(status=ok, entries=[entry]).SerializeToString()
    return answer


def our_delivery() -> bytes:
    properties = SystemProperties(
        tag="TagA",
        keys=("order-4711",),
        message_id=MESSAGE_ID,
        body_digest=Digest(type=DigestType.CRC32, checksum="3610A686"),
        body_encoding=Encoding.IDENTITY,
        message_type=MessageType.NORMAL,
        born_timestamp=Timestamp(seconds=1_700_000_000, nanos=123_456_000),
        born_host="producer-1.example",
        store_timestamp=Timestamp(seconds=1_700_000_000, nanos=124_000_000),
        store_host="127.0.0.1:8081",
        receipt_handle=HANDLE,
        queue_id=3,
        queue_offset=4711,
        invisible_duration=Duration(seconds=60),
        delivery_attempt=1,
    )
    message = Message(
        topic=Resource(name="orders"),
        user_properties={"customer": "4711"},
        system_properties=properties,
        body=BODY,
    )
    return ReceiveMessageResponse(message=message).encode()


def their_delivery() -> bytes:
    properties = definition_pb2.SystemProperties(
        tag="TagA",
        keys=("order-4711",),
        message_id=MESSAGE_ID,
        body_digest=definition_pb2.Digest(type=1, checksum="3610A686"),
        body_encoding=1,
        message_type=1,
        born_timestamp={"seconds": 1_700_000_000, "nanos": 123_456_000},
        born_host="producer-1.example",
        store_timestamp={"seconds": 1_700_000_000, "nanos": 124_000_000},
        store_host="127.0.0.1:8081",
        receipt_handle=HANDLE,
        queue_id=3,
        queue_offset=4711,
        invisible_duration={"seconds": 60},
        delivery_attempt=1,
    )
    message = definition_pb2.Message(
        topic=definition_pb2.Resource(name="orders"),
        user_properties={"customer": "4711"},
        system_properties=properties,
        body=BODY,
    )
    answer: bytes = service_pb2.ReceiveMessageResponse(message=message).SerializeToString()
    return answer


def our_ack(data: bytes) -> bytes:
    request = AckMessageRequest.decode(data)
    assert request.group is not None and request.group.name
    assert request.topic is not None and request.topic.name
    ok = Status(code=Code.OK, message="OK")
    entries = tuple(
        AckMessageResultEntry(message_id=each.message_id, receipt_handle=each.receipt_handle, status=ok)
        for each in request.entries
    )
    return AckMessageResponse(status=ok, entries=entries).encode()


def their_ack(data: bytes) -> bytes:
    request = service_pb2.AckMessageRequest.FromString(data)
    assert request.group.name and request.topic.name
    ok = definition_pb2.Status(code=20000, message="OK")
    entries = [
        service_pb2.AckMessageResultEntry(
            message_id=each.message_id, receipt_handle=each.receipt_handle, status=ok
        )
        for each in request.entries
    ]
    answer: bytes = service_pb2.AckMessageResponse(status=ok, entries=entries).SerializeToString()
    return answer


def main() -> None:
    theirs: dict[str, Any] = vars(service_pb2)
    sent, ack = SENT.encode(), ACK.encode()
    rows: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("SendMessage: decode, read, answer", partial(our_send, sent), partial(their_send, sent)),
        ("a received message: make, encode", our_delivery, their_delivery),
        ("AckMessage: decode, read, answer", partial(our_ack, ack), partial(their_ack, ack)),
    ]
    for request in (SENT, RECEIVE, ACK, HEARTBEAT):
        kind, data = type(request), request.encode()
        decoding = partial(theirs[kind.__name__].FromString, data)
        rows.append((f"decode {kind.__name__}, {len(data)} bytes", partial(kind.decode, data), decoding))
    for message in (RECEIVED, service.HeartbeatResponse(status=Status(code=Code.OK, message="OK"))):
        name = type(message).__name__
        made = theirs[name].FromString(message.encode())
        rows.append((f"encode {name}", message.encode, made.SerializeToString))
    table = Table("", "ours, µs", "protobuf (upb), µs", "ratio")
    for name, our_call, their_call in rows:
        ours, other = microseconds(our_call), microseconds(their_call)
        table.add_row(name, f"{ours:.2f}", f"{other:.2f}", f"{ours / other:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
