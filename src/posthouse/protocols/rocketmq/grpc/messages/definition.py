"""Messages that several calls have in common."""

from collections.abc import Mapping

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.enums import (
    AddressScheme,
    DigestType,
    Encoding,
    FilterType,
    MessageType,
    OffsetOptionPolicy,
    Permission,
)
from posthouse.protocols.rocketmq.grpc.messages.fields import (
    binary,
    enum,
    int32,
    optional_enum,
    optional_int32,
    optional_int64,
    optional_string,
    repeated,
    repeated_enum,
    repeated_string,
    string,
    string_map,
    submessage,
)
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp


class Status(ProtoMessage):
    code: Code | int = enum(1, Code)
    message: str = string(2)


class Resource(ProtoMessage):
    """A topic or a group."""

    resource_namespace: str = string(1)
    name: str = string(2)


class FilterExpression(ProtoMessage):
    type: FilterType | int = enum(1, FilterType)
    expression: str = string(2)


class SubscriptionEntry(ProtoMessage):
    topic: Resource | None = submessage(1, Resource)
    expression: FilterExpression | None = submessage(2, FilterExpression)


class Address(ProtoMessage):
    host: str = string(1)
    port: int = int32(2)


class Endpoints(ProtoMessage):
    scheme: AddressScheme | int = enum(1, AddressScheme)
    addresses: tuple[Address, ...] = repeated(2, Address)


class Broker(ProtoMessage):
    name: str = string(1)
    id: int = int32(2)
    endpoints: Endpoints | None = submessage(3, Endpoints)


class MessageQueue(ProtoMessage):
    topic: Resource | None = submessage(1, Resource)
    id: int = int32(2)
    permission: Permission | int = enum(3, Permission)
    broker: Broker | None = submessage(4, Broker)
    accept_message_types: tuple[MessageType | int, ...] = repeated_enum(5, MessageType)


class Assignment(ProtoMessage):
    message_queue: MessageQueue | None = submessage(1, MessageQueue)


class Digest(ProtoMessage):
    type: DigestType | int = enum(1, DigestType)
    checksum: str = string(2)


class DeadLetterQueue(ProtoMessage):
    """Where a dead letter came from."""

    topic: str = string(1)
    message_id: str = string(2)


class SystemProperties(ProtoMessage):
    tag: str | None = optional_string(1)
    keys: tuple[str, ...] = repeated_string(2)
    message_id: str = string(3)
    body_digest: Digest | None = submessage(4, Digest)
    body_encoding: Encoding | int = enum(5, Encoding)
    message_type: MessageType | int = enum(6, MessageType)
    born_timestamp: Timestamp | None = submessage(7, Timestamp)
    born_host: str = string(8)
    store_timestamp: Timestamp | None = submessage(9, Timestamp)
    store_host: str = string(10)
    delivery_timestamp: Timestamp | None = submessage(11, Timestamp)
    receipt_handle: str | None = optional_string(12)
    queue_id: int = int32(13)
    queue_offset: int | None = optional_int64(14)
    invisible_duration: Duration | None = submessage(15, Duration)
    delivery_attempt: int | None = optional_int32(16)
    message_group: str | None = optional_string(17)
    trace_context: str | None = optional_string(18)
    orphaned_transaction_recovery_duration: Duration | None = submessage(19, Duration)
    dead_letter_queue: DeadLetterQueue | None = submessage(20, DeadLetterQueue)
    lite_topic: str | None = optional_string(21)
    priority: int | None = optional_int32(22)


class Message(ProtoMessage):
    topic: Resource | None = submessage(1, Resource)
    user_properties: Mapping[str, str] = string_map(2)
    system_properties: SystemProperties | None = submessage(3, SystemProperties)
    body: bytes = binary(4)


class OffsetOption(ProtoMessage):
    policy: OffsetOptionPolicy | int | None = optional_enum(1, OffsetOptionPolicy, oneof="offset_type")
    offset: int | None = optional_int64(2, oneof="offset_type")
    tail_n: int | None = optional_int64(3, oneof="offset_type")
    timestamp: int | None = optional_int64(4, oneof="offset_type")
