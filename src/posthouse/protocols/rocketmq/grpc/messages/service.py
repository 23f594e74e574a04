"""Requests and responses of the calls, and the table of the calls.

A response whose content is a oneof is one of many in a stream.
"""

from dataclasses import dataclass
from typing import Final

from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Assignment,
    Endpoints,
    FilterExpression,
    Message,
    MessageQueue,
    OffsetOption,
    Resource,
    Status,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import (
    ClientType,
    LiteSubscriptionAction,
    QueryOffsetPolicy,
    TransactionResolution,
    TransactionSource,
)
from posthouse.protocols.rocketmq.grpc.messages.fields import (
    boolean,
    enum,
    int32,
    int64,
    optional_boolean,
    optional_int64,
    optional_string,
    repeated,
    repeated_string,
    string,
    submessage,
)
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.telemetry import TelemetryCommand
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp


class QueryRouteRequest(ProtoMessage):
    topic: Resource | None = submessage(1, Resource)
    endpoints: Endpoints | None = submessage(2, Endpoints)


class QueryRouteResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    message_queues: tuple[MessageQueue, ...] = repeated(2, MessageQueue)


class HeartbeatRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    client_type: ClientType | int = enum(2, ClientType)


class HeartbeatResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)


class SendMessageRequest(ProtoMessage):
    messages: tuple[Message, ...] = repeated(1, Message)


class SendResultEntry(ProtoMessage):
    status: Status | None = submessage(1, Status)
    message_id: str = string(2)
    transaction_id: str = string(3)
    offset: int = int64(4)
    recall_handle: str = string(5)


class SendMessageResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    entries: tuple[SendResultEntry, ...] = repeated(2, SendResultEntry)


class QueryAssignmentRequest(ProtoMessage):
    topic: Resource | None = submessage(1, Resource)
    group: Resource | None = submessage(2, Resource)
    endpoints: Endpoints | None = submessage(3, Endpoints)


class QueryAssignmentResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    assignments: tuple[Assignment, ...] = repeated(2, Assignment)


class ReceiveMessageRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    message_queue: MessageQueue | None = submessage(2, MessageQueue)
    filter_expression: FilterExpression | None = submessage(3, FilterExpression)
    batch_size: int = int32(4)
    invisible_duration: Duration | None = submessage(5, Duration)
    auto_renew: bool = boolean(6)
    long_polling_timeout: Duration | None = submessage(7, Duration)
    attempt_id: str | None = optional_string(8)


class ReceiveMessageResponse(ProtoMessage):
    status: Status | None = submessage(1, Status, oneof="content")
    message: Message | None = submessage(2, Message, oneof="content")
    delivery_timestamp: Timestamp | None = submessage(3, Timestamp, oneof="content")


class AckMessageEntry(ProtoMessage):
    message_id: str = string(1)
    receipt_handle: str = string(2)
    lite_topic: str | None = optional_string(3)


class AckMessageRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    topic: Resource | None = submessage(2, Resource)
    entries: tuple[AckMessageEntry, ...] = repeated(3, AckMessageEntry)


class AckMessageResultEntry(ProtoMessage):
    message_id: str = string(1)
    receipt_handle: str = string(2)
    status: Status | None = submessage(3, Status)


class AckMessageResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    entries: tuple[AckMessageResultEntry, ...] = repeated(2, AckMessageResultEntry)


class ForwardMessageToDeadLetterQueueRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    topic: Resource | None = submessage(2, Resource)
    receipt_handle: str = string(3)
    message_id: str = string(4)
    delivery_attempt: int = int32(5)
    max_delivery_attempts: int = int32(6)
    lite_topic: str | None = optional_string(7)


class ForwardMessageToDeadLetterQueueResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)


class PullMessageRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    message_queue: MessageQueue | None = submessage(2, MessageQueue)
    offset: int = int64(3)
    batch_size: int = int32(4)
    filter_expression: FilterExpression | None = submessage(5, FilterExpression)
    long_polling_timeout: Duration | None = submessage(6, Duration)


class PullMessageResponse(ProtoMessage):
    status: Status | None = submessage(1, Status, oneof="content")
    message: Message | None = submessage(2, Message, oneof="content")
    next_offset: int | None = optional_int64(3, oneof="content")


class UpdateOffsetRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    message_queue: MessageQueue | None = submessage(2, MessageQueue)
    offset: int = int64(3)


class UpdateOffsetResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)


class GetOffsetRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    message_queue: MessageQueue | None = submessage(2, MessageQueue)


class GetOffsetResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    offset: int = int64(2)


class QueryOffsetRequest(ProtoMessage):
    message_queue: MessageQueue | None = submessage(1, MessageQueue)
    query_offset_policy: QueryOffsetPolicy | int = enum(2, QueryOffsetPolicy)
    timestamp: Timestamp | None = submessage(3, Timestamp)


class QueryOffsetResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    offset: int = int64(2)


class EndTransactionRequest(ProtoMessage):
    topic: Resource | None = submessage(1, Resource)
    message_id: str = string(2)
    transaction_id: str = string(3)
    resolution: TransactionResolution | int = enum(4, TransactionResolution)
    source: TransactionSource | int = enum(5, TransactionSource)
    trace_context: str = string(6)


class EndTransactionResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)


class NotifyClientTerminationRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)


class NotifyClientTerminationResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)


class ChangeInvisibleDurationRequest(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    topic: Resource | None = submessage(2, Resource)
    receipt_handle: str = string(3)
    invisible_duration: Duration | None = submessage(4, Duration)
    message_id: str = string(5)
    lite_topic: str | None = optional_string(6)
    suspend: bool | None = optional_boolean(7)


class ChangeInvisibleDurationResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    receipt_handle: str = string(2)


class RecallMessageRequest(ProtoMessage):
    topic: Resource | None = submessage(1, Resource)
    recall_handle: str = string(2)


class RecallMessageResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)
    message_id: str = string(2)


class SyncLiteSubscriptionRequest(ProtoMessage):
    action: LiteSubscriptionAction | int = enum(1, LiteSubscriptionAction)
    topic: Resource | None = submessage(2, Resource)
    group: Resource | None = submessage(3, Resource)
    lite_topic_set: tuple[str, ...] = repeated_string(4)
    version: int | None = optional_int64(5)
    offset_option: OffsetOption | None = submessage(6, OffsetOption)


class SyncLiteSubscriptionResponse(ProtoMessage):
    status: Status | None = submessage(1, Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    name: str
    request: type[ProtoMessage]
    response: type[ProtoMessage]
    streams_requests: bool = False
    streams_responses: bool = False

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"


SERVICE: Final = "apache.rocketmq.v2.MessagingService"
RPCS: Final = (
    Rpc(name="QueryRoute", request=QueryRouteRequest, response=QueryRouteResponse),
    Rpc(name="Heartbeat", request=HeartbeatRequest, response=HeartbeatResponse),
    Rpc(name="SendMessage", request=SendMessageRequest, response=SendMessageResponse),
    Rpc(name="QueryAssignment", request=QueryAssignmentRequest, response=QueryAssignmentResponse),
    Rpc(
        name="ReceiveMessage",
        request=ReceiveMessageRequest,
        response=ReceiveMessageResponse,
        streams_responses=True,
    ),
    Rpc(name="AckMessage", request=AckMessageRequest, response=AckMessageResponse),
    Rpc(
        name="ForwardMessageToDeadLetterQueue",
        request=ForwardMessageToDeadLetterQueueRequest,
        response=ForwardMessageToDeadLetterQueueResponse,
    ),
    Rpc(name="PullMessage", request=PullMessageRequest, response=PullMessageResponse, streams_responses=True),
    Rpc(name="UpdateOffset", request=UpdateOffsetRequest, response=UpdateOffsetResponse),
    Rpc(name="GetOffset", request=GetOffsetRequest, response=GetOffsetResponse),
    Rpc(name="QueryOffset", request=QueryOffsetRequest, response=QueryOffsetResponse),
    Rpc(name="EndTransaction", request=EndTransactionRequest, response=EndTransactionResponse),
    Rpc(
        name="Telemetry",
        request=TelemetryCommand,
        response=TelemetryCommand,
        streams_requests=True,
        streams_responses=True,
    ),
    Rpc(
        name="NotifyClientTermination",
        request=NotifyClientTerminationRequest,
        response=NotifyClientTerminationResponse,
    ),
    Rpc(
        name="ChangeInvisibleDuration",
        request=ChangeInvisibleDurationRequest,
        response=ChangeInvisibleDurationResponse,
    ),
    Rpc(name="RecallMessage", request=RecallMessageRequest, response=RecallMessageResponse),
    Rpc(
        name="SyncLiteSubscription",
        request=SyncLiteSubscriptionRequest,
        response=SyncLiteSubscriptionResponse,
    ),
)
