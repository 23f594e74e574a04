"""Telemetry: what clients say of themselves, and what they are told. Heartbeats, and their end."""

from functools import partial
from typing import Final

from msgspec.structs import replace

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.model.errors import BadRequest, LoginFailed, PosthouseError
from posthouse.protocols.grpc.calls import BidiCall
from posthouse.protocols.grpc.status import GrpcError
from posthouse.protocols.grpc.status import Status as GrpcStatus
from posthouse.protocols.rocketmq.delays import LEVELS
from posthouse.protocols.rocketmq.grpc.converting import name_of
from posthouse.protocols.rocketmq.grpc.handlers.receive import USUAL_MESSAGES, expression_of
from posthouse.protocols.rocketmq.grpc.handlers.transactions import check_command
from posthouse.protocols.rocketmq.grpc.messages.definition import Resource, SubscriptionEntry
from posthouse.protocols.rocketmq.grpc.messages.enums import ClientType
from posthouse.protocols.rocketmq.grpc.messages.service import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    CustomizedBackoff,
    ExponentialBackoff,
    Metric,
    Publishing,
    RetryPolicy,
    Settings,
    Subscription,
    TelemetryCommand,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc, decoded
from posthouse.protocols.rocketmq.grpc.session import MessagingSession
from posthouse.protocols.rocketmq.grpc.statuses import OK, Refused
from posthouse.protocols.rocketmq.names import topic_name

_SEND_ATTEMPTS: Final = 3
_FIRST_PAUSE_MS: Final = 10
_LONGEST_PAUSE_MS: Final = 1000
_POLL_MS: Final = 20_000
_FIRST_RETRY: Final = 2
"""Of the delay levels."""
_NO_METRICS: Final = Metric(on=False)
MOST_SETTINGS_BYTES: Final = 1024 * 1024


class TelemetryStream:
    """The stream of one client, for those who ask it something."""

    def __init__(self, call: BidiCall, session: MessagingSession) -> None:
        self._call = call
        self._session = session
        self.topics: tuple[Resource, ...] = ()
        self.is_answered = False
        """The client has the answer to its settings: it takes the first message of a stream for that."""

    def ask(self, id: int, message: HalfMessage) -> bool:
        """Only those who may write to the topic see what was sent to it, whatever topics they name."""
        if not self.is_answered:
            return False
        guard = self._session.guard
        if not all(guard.may(Operation.WRITE, Kind.TOPIC, topic) for topic in message.topics):
            return False
        like = next(iter(self.topics), None)
        return self._call.push(check_command(id, message, like, self._session.store_host).encode())


async def telemetry(call: BidiCall) -> None:
    try:
        rpc = Rpc(call)
    except LoginFailed as error:
        raise GrpcError(GrpcStatus.UNAUTHENTICATED, str(error)) from error
    except (Refused, PosthouseError) as error:
        raise GrpcError(GrpcStatus.INVALID_ARGUMENT, str(error)) from error
    stream = TelemetryStream(call, rpc.session)
    rpc.client.telemetry = stream
    try:
        async for data in call:
            if len(data) > MOST_SETTINGS_BYTES:
                raise GrpcError(
                    GrpcStatus.INVALID_ARGUMENT, f"settings of more than {MOST_SETTINGS_BYTES} bytes"
                )
            answered = rpc.session.charges.timed(partial(_told, rpc, stream, data))
            if answered is not None:
                stream.is_answered = True  # what is pushed from now on comes after it
                await call.send(answered.encode())
    finally:
        if rpc.client.telemetry is stream:
            rpc.client.telemetry = None


def _told(rpc: Rpc, stream: TelemetryStream, data: bytes) -> TelemetryCommand | None:
    """The answer to a message of the stream, if it wants one. Raises GrpcError."""
    try:
        # It may have been forgotten meanwhile.
        rpc.client = rpc.server.clients.heard(rpc.client.id, rpc.session, rpc.client.user)
        rpc.client.telemetry = stream
        command = decoded(TelemetryCommand, data)
        if command.settings is None:
            return None
        return TelemetryCommand(status=OK, settings=_settings(rpc, stream, command.settings))
    except (Refused, PosthouseError) as error:
        raise GrpcError(GrpcStatus.INVALID_ARGUMENT, str(error)) from error


def _settings(rpc: Rpc, stream: TelemetryStream, said: Settings) -> Settings:
    """Those of the client, completed. Raises Refused and PosthouseError."""
    if said.subscription is not None:
        subscription, backoff = _subscription(rpc, said.subscription)
        return replace(said, subscription=subscription, backoff_policy=backoff, metric=_NO_METRICS)
    publishing = said.publishing
    if publishing is None:
        raise BadRequest("the settings are neither those of a producer nor those of a consumer")
    stream.topics = publishing.topics
    topics = frozenset(name_of(each) for each in publishing.topics)
    rpc.server.clients.publishes(rpc.client, topics)
    return replace(
        said,
        metric=_NO_METRICS,
        publishing=Publishing(
            topics=publishing.topics,
            max_body_size=rpc.server.broker.topics.defaults.max_message_bytes,
            validate_message_type=False,
        ),
        backoff_policy=RetryPolicy(
            max_attempts=_SEND_ATTEMPTS,
            exponential_backoff=ExponentialBackoff(
                initial=Duration.from_ms(_FIRST_PAUSE_MS),
                max=Duration.from_ms(_LONGEST_PAUSE_MS),
                multiplier=2.0,
            ),
        ),
    )


def _subscription(rpc: Rpc, said: Subscription) -> tuple[Subscription, RetryPolicy]:
    group = rpc.group(said.group)
    clients = rpc.server.clients
    clients.joins(rpc.client, group)
    wanted = {_topic(each): expression_of(each.expression) for each in said.subscriptions}
    for topic, expression in wanted.items():
        clients.subscribes(rpc.client, group, topic, *expression)
    clients.subscribes_only(rpc.client, group, wanted)
    groups = rpc.server.groups
    answered = Subscription(
        group=said.group,
        subscriptions=said.subscriptions,
        fifo=groups.is_ordered(group),
        receive_batch_size=said.receive_batch_size or USUAL_MESSAGES,
        long_polling_timeout=said.long_polling_timeout or Duration.from_ms(_POLL_MS),
    )
    backoff = RetryPolicy(
        max_attempts=groups.most_deliveries(group),
        customized_backoff=CustomizedBackoff(
            next=tuple(Duration.from_ms(each) for each in LEVELS[_FIRST_RETRY:])
        ),
    )
    return answered, backoff


def _topic(entry: SubscriptionEntry) -> str:
    return topic_name(name_of(entry.topic))


def heartbeat(rpc: Rpc, request: HeartbeatRequest, answer: Answer[HeartbeatResponse]) -> None:
    consumers = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)
    if request.client_type in consumers and request.group is not None:
        rpc.server.clients.joins(rpc.client, rpc.group(request.group))
    answer.give(HeartbeatResponse(status=OK))


def notify_termination(
    rpc: Rpc, request: NotifyClientTerminationRequest, answer: Answer[NotifyClientTerminationResponse]
) -> None:
    rpc.server.clients.remove(rpc.client)
    answer.give(NotifyClientTerminationResponse(status=OK))
