"""Half messages of producers without a producer group: decided, and checked where nobody has decided."""

import logging
from collections.abc import Coroutine
from typing import Any

from posthouse.broker.access.operations import Operation
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import AlreadyDecided
from posthouse.protocols.rocketmq.codec.codes import KEYS, TAGS, UNIQUE_KEY
from posthouse.protocols.rocketmq.grpc.converting import digest_of, name_of, resource_of, user_properties
from posthouse.protocols.rocketmq.grpc.messages.definition import Message as GrpcMessage
from posthouse.protocols.rocketmq.grpc.messages.definition import Resource, SystemProperties
from posthouse.protocols.rocketmq.grpc.messages.enums import Encoding, MessageType, TransactionResolution
from posthouse.protocols.rocketmq.grpc.messages.service import EndTransactionRequest, EndTransactionResponse
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Timestamp
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc
from posthouse.protocols.rocketmq.grpc.statuses import OK
from posthouse.protocols.rocketmq.grpc.transaction_ids import (
    group_of_topic,
    half_message_id,
    topic_of_group,
    transaction_id,
)
from posthouse.protocols.rocketmq.messages import message_of

log = logging.getLogger(__name__)


def end_transaction(
    rpc: Rpc, request: EndTransactionRequest, answer: Answer[EndTransactionResponse]
) -> Coroutine[Any, Any, None] | None:
    rpc.topic(request.topic, Operation.WRITE)
    id = half_message_id(request.transaction_id)
    if request.resolution not in (TransactionResolution.COMMIT, TransactionResolution.ROLLBACK):
        answer.give(EndTransactionResponse(status=OK))  # it is asked again
        return None
    is_commit = request.resolution == TransactionResolution.COMMIT
    return _end(rpc, id, name_of(request.topic), answer, commit=is_commit)


async def _end(
    rpc: Rpc, id: int, topic: str, answer: Answer[EndTransactionResponse], *, commit: bool
) -> None:
    half_messages = rpc.server.broker.half_messages
    try:
        # Others may wait for the same decision: it must not end with this call.
        await undisturbed(half_messages.decide(id, group=group_of_topic(topic), commit=commit))
    except AlreadyDecided as error:
        log.warning("the RocketMQ producer %s, topic %s: %s", rpc.client.id, topic, error)
        raise
    answer.give(EndTransactionResponse(status=OK))


def check_command(id: int, half: HalfMessage, like: Resource | None, store_host: str) -> TelemetryCommand:
    """What asks a producer."""
    message = message_of(half.record(id))
    properties = message.properties
    keys = properties.get(KEYS)
    asked = GrpcMessage(
        topic=resource_of(topic_of_group(half.group) or half.content.exchange, like),
        user_properties=user_properties(properties),
        system_properties=SystemProperties(
            tag=properties.get(TAGS),
            keys=() if keys is None else tuple(keys.split()),
            message_id=properties.get(UNIQUE_KEY, ""),
            body_digest=digest_of(message.body),
            body_encoding=Encoding.IDENTITY,
            message_type=MessageType.TRANSACTION,
            born_timestamp=Timestamp.from_ms(message.born_at),
            store_timestamp=Timestamp.from_ms(half.prepared_ms),
            store_host=store_host,
            queue_id=half.content.partition or 0,
        ),
        body=message.body,
    )
    return TelemetryCommand(
        recover_orphaned_transaction_command=RecoverOrphanedTransactionCommand(
            message=asked, transaction_id=transaction_id(id)
        )
    )
