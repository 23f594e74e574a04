"""Each RPC as a request, and the permissions that it needs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.rocketmq.grpc.messages import service
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import MessageQueue
from posthouse.protocols.rocketmq.grpc.messages.enums import (
    ClientType,
    MessageType,
    QueryOffsetPolicy,
    TransactionResolution,
)
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageEntry,
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    EndTransactionRequest,
    ForwardMessageToDeadLetterQueueRequest,
    GetOffsetRequest,
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    PullMessageRequest,
    QueryAssignmentRequest,
    QueryOffsetRequest,
    QueryRouteRequest,
    RecallMessageRequest,
    SendMessageRequest,
    SyncLiteSubscriptionRequest,
    UpdateOffsetRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import TelemetryCommand
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient, receipt
from tests.protocols.rocketmq.grpc.signed_calls import (
    Permission,
)

READ: Permission = (Operation.READ, Kind.TOPIC, "t")
WRITE: Permission = (Operation.WRITE, Kind.TOPIC, "t")
GROUP: Permission = (Operation.READ, Kind.GROUP, "g")
PULLING: Permission = (Operation.READ, Kind.GROUP, "pulling")
NEW: Permission = (Operation.WRITE, Kind.TOPIC, "new")
CREATE: Permission = (Operation.CREATE, Kind.TOPIC, "new")

Prepare = Callable[[MessagingClient], Awaitable[ProtoMessage]]
"""What an administrator does before, and the request."""


def request_of(make: Callable[[MessagingClient], ProtoMessage]) -> Prepare:
    async def prepare(admin: MessagingClient) -> ProtoMessage:
        return make(admin)

    return prepare


def queue(admin: MessagingClient) -> MessageQueue:
    return MessageQueue(topic=admin.resource("t"), id=0)


async def leased(admin: MessagingClient) -> str:
    """The receipt of a message that the administrator has got in the group."""
    await admin.send("t")
    [message] = await admin.receive("t", "g", most=1)
    return receipt(message)


async def acknowledging(admin: MessagingClient) -> ProtoMessage:
    entry = AckMessageEntry(message_id="id", receipt_handle=await leased(admin))
    return AckMessageRequest(group=admin.resource("g"), topic=admin.resource("t"), entries=(entry,))


async def forwarding(admin: MessagingClient) -> ProtoMessage:
    return ForwardMessageToDeadLetterQueueRequest(
        group=admin.resource("g"), topic=admin.resource("t"), receipt_handle=await leased(admin)
    )


async def changing(admin: MessagingClient) -> ProtoMessage:
    return ChangeInvisibleDurationRequest(
        group=admin.resource("g"),
        topic=admin.resource("t"),
        receipt_handle=await leased(admin),
        invisible_duration=Duration.from_ms(20_000),
    )


async def receiving(admin: MessagingClient) -> ProtoMessage:
    await admin.send("t")
    return admin.receive_request("t", "g")


async def pulling(admin: MessagingClient) -> ProtoMessage:
    await admin.send("t")
    return PullMessageRequest(
        group=admin.resource("pulling"), message_queue=queue(admin), long_polling_timeout=Duration()
    )


async def asking_for_an_offset(admin: MessagingClient) -> ProtoMessage:
    group = admin.resource("pulling")
    assert await admin.code(UpdateOffsetRequest(group=group, message_queue=queue(admin))) == Code.OK
    return GetOffsetRequest(group=group, message_queue=queue(admin))


async def recalling(admin: MessagingClient) -> ProtoMessage:
    later = Timestamp.from_ms(1 << 45)
    [entry] = (await admin.send("t", message_type=MessageType.DELAY, delivery_timestamp=later)).entries
    return RecallMessageRequest(topic=admin.resource("t"), recall_handle=entry.recall_handle)


async def deciding(admin: MessagingClient) -> ProtoMessage:
    [entry] = (await admin.send("t", message_type=MessageType.TRANSACTION)).entries
    return EndTransactionRequest(
        topic=admin.resource("t"),
        transaction_id=entry.transaction_id,
        resolution=TransactionResolution.COMMIT,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    rpc: str
    prepare: Prepare
    needed: tuple[Permission, ...] = ()
    done: int = Code.OK

    def __str__(self) -> str:
        words = [f"{operation} {kind} {name}" for operation, kind, name in self.needed]
        return ", ".join([self.rpc, *words])


CASES = (
    Case(
        rpc="QueryRoute",
        prepare=request_of(lambda a: QueryRouteRequest(topic=a.resource("t"))),
        needed=(READ,),
    ),
    Case(
        rpc="QueryRoute",
        prepare=request_of(lambda a: QueryRouteRequest(topic=a.resource("t"))),
        needed=(WRITE,),
    ),
    Case(
        rpc="Heartbeat",
        prepare=request_of(
            lambda a: HeartbeatRequest(group=a.resource("g"), client_type=ClientType.PUSH_CONSUMER)
        ),
        needed=(GROUP,),
    ),
    Case(
        rpc="Heartbeat",
        prepare=request_of(lambda _: HeartbeatRequest(client_type=ClientType.PRODUCER)),
    ),
    Case(
        rpc="SendMessage",
        prepare=request_of(lambda a: SendMessageRequest(messages=(a.message("t", b"v"),))),
        needed=(WRITE,),
    ),
    Case(
        rpc="SendMessage",
        prepare=request_of(lambda a: SendMessageRequest(messages=(a.message("new", b"v"),))),
        needed=(NEW, CREATE),
    ),
    Case(
        rpc="QueryAssignment",
        prepare=request_of(lambda a: QueryAssignmentRequest(topic=a.resource("t"), group=a.resource("g"))),
        needed=(READ, GROUP),
    ),
    Case(rpc="ReceiveMessage", prepare=receiving, needed=(READ, GROUP)),
    Case(rpc="AckMessage", prepare=acknowledging, needed=(READ, GROUP)),
    Case(rpc="ForwardMessageToDeadLetterQueue", prepare=forwarding, needed=(READ, GROUP)),
    Case(rpc="ChangeInvisibleDuration", prepare=changing, needed=(READ, GROUP)),
    Case(rpc="PullMessage", prepare=pulling, needed=(READ, PULLING)),
    Case(
        rpc="UpdateOffset",
        prepare=request_of(
            lambda a: UpdateOffsetRequest(group=a.resource("pulling"), message_queue=queue(a), offset=1)
        ),
        needed=(READ, PULLING),
    ),
    Case(rpc="GetOffset", prepare=asking_for_an_offset, needed=(READ, PULLING)),
    Case(
        rpc="QueryOffset",
        prepare=request_of(
            lambda a: QueryOffsetRequest(message_queue=queue(a), query_offset_policy=QueryOffsetPolicy.END)
        ),
        needed=(READ,),
    ),
    Case(rpc="EndTransaction", prepare=deciding, needed=(WRITE,)),
    Case(rpc="RecallMessage", prepare=recalling, needed=(WRITE,)),
    Case(
        rpc="Telemetry",
        prepare=request_of(lambda a: TelemetryCommand(settings=a.subscription("g", t="*"))),
        needed=(GROUP,),
    ),
    Case(rpc="Telemetry", prepare=request_of(lambda a: TelemetryCommand(settings=a.publishing("t")))),
    Case(rpc="NotifyClientTermination", prepare=request_of(lambda _: NotifyClientTerminationRequest())),
    Case(
        rpc="SyncLiteSubscription",
        prepare=request_of(lambda _: SyncLiteSubscriptionRequest()),
        done=Code.NOT_IMPLEMENTED,
    ),
)
RPCS = {each.name: each for each in service.RPCS}
FIRST = {each.rpc: each for each in reversed(CASES)}
"""A case of each RPC."""
