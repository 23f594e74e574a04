"""What this broker does not do."""

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.service import (
    SyncLiteSubscriptionRequest,
    SyncLiteSubscriptionResponse,
)
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc
from posthouse.protocols.rocketmq.grpc.statuses import Refused


def sync_lite_subscription(
    rpc: Rpc, request: SyncLiteSubscriptionRequest, answer: Answer[SyncLiteSubscriptionResponse]
) -> None:
    raise Refused(Code.NOT_IMPLEMENTED, "there are no lite topics")
