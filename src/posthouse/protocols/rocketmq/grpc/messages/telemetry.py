"""What goes over the stream Telemetry, in both directions: settings first, commands later."""

from collections.abc import Mapping

from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Endpoints,
    Message,
    Resource,
    Status,
    SubscriptionEntry,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import ClientType, Language
from posthouse.protocols.rocketmq.grpc.messages.fields import (
    boolean,
    enum,
    float32,
    int32,
    optional_boolean,
    optional_enum,
    optional_int32,
    optional_string,
    repeated,
    string,
    string_map,
    submessage,
)
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration


class ExponentialBackoff(ProtoMessage):
    initial: Duration | None = submessage(1, Duration)
    max: Duration | None = submessage(2, Duration)
    multiplier: float = float32(3)


class CustomizedBackoff(ProtoMessage):
    next: tuple[Duration, ...] = repeated(1, Duration)


class RetryPolicy(ProtoMessage):
    max_attempts: int = int32(1)
    exponential_backoff: ExponentialBackoff | None = submessage(2, ExponentialBackoff, oneof="strategy")
    customized_backoff: CustomizedBackoff | None = submessage(3, CustomizedBackoff, oneof="strategy")


class UA(ProtoMessage):
    """The client: its library and its machine."""

    language: Language | int = enum(1, Language)
    version: str = string(2)
    platform: str = string(3)
    hostname: str = string(4)


class Metric(ProtoMessage):
    on: bool = boolean(1)
    endpoints: Endpoints | None = submessage(2, Endpoints)


class Publishing(ProtoMessage):
    topics: tuple[Resource, ...] = repeated(1, Resource)
    max_body_size: int = int32(2)
    validate_message_type: bool = boolean(3)


class Subscription(ProtoMessage):
    group: Resource | None = submessage(1, Resource)
    subscriptions: tuple[SubscriptionEntry, ...] = repeated(2, SubscriptionEntry)
    fifo: bool | None = optional_boolean(3)
    receive_batch_size: int | None = optional_int32(4)
    long_polling_timeout: Duration | None = submessage(5, Duration)
    lite_subscription_quota: int | None = optional_int32(6)
    max_lite_topic_size: int | None = optional_int32(7)


class Settings(ProtoMessage):
    client_type: ClientType | int | None = optional_enum(1, ClientType)
    access_point: Endpoints | None = submessage(2, Endpoints)
    backoff_policy: RetryPolicy | None = submessage(3, RetryPolicy)
    request_timeout: Duration | None = submessage(4, Duration)
    publishing: Publishing | None = submessage(5, Publishing, oneof="pub_sub")
    subscription: Subscription | None = submessage(6, Subscription, oneof="pub_sub")
    user_agent: UA | None = submessage(7, UA)
    metric: Metric | None = submessage(8, Metric)
    client_properties: Mapping[str, str] = string_map(9)


class ThreadStackTrace(ProtoMessage):
    nonce: str = string(1)
    thread_stack_trace: str | None = optional_string(2)


class VerifyMessageResult(ProtoMessage):
    nonce: str = string(1)


class RecoverOrphanedTransactionCommand(ProtoMessage):
    message: Message | None = submessage(1, Message)
    transaction_id: str = string(2)


class PrintThreadStackTraceCommand(ProtoMessage):
    nonce: str = string(1)


class VerifyMessageCommand(ProtoMessage):
    nonce: str = string(1)
    message: Message | None = submessage(2, Message)


class ReconnectEndpointsCommand(ProtoMessage):
    nonce: str = string(1)


class NotifyUnsubscribeLiteCommand(ProtoMessage):
    lite_topic: str = string(1)


class TelemetryCommand(ProtoMessage):
    status: Status | None = submessage(1, Status)
    settings: Settings | None = submessage(2, Settings, oneof="command")
    thread_stack_trace: ThreadStackTrace | None = submessage(3, ThreadStackTrace, oneof="command")
    verify_message_result: VerifyMessageResult | None = submessage(4, VerifyMessageResult, oneof="command")
    recover_orphaned_transaction_command: RecoverOrphanedTransactionCommand | None = submessage(
        5, RecoverOrphanedTransactionCommand, oneof="command"
    )
    print_thread_stack_trace_command: PrintThreadStackTraceCommand | None = submessage(
        6, PrintThreadStackTraceCommand, oneof="command"
    )
    verify_message_command: VerifyMessageCommand | None = submessage(7, VerifyMessageCommand, oneof="command")
    reconnect_endpoints_command: ReconnectEndpointsCommand | None = submessage(
        8, ReconnectEndpointsCommand, oneof="command"
    )
    notify_unsubscribe_lite_command: NotifyUnsubscribeLiteCommand | None = submessage(
        9, NotifyUnsubscribeLiteCommand, oneof="command"
    )
