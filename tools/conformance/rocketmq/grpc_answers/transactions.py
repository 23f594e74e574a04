"""Half messages, what becomes of them, and who is asked for them."""

import asyncio
from typing import Any

from posthouse.protocols.rocketmq.grpc.messages.definition import Resource
from posthouse.protocols.rocketmq.grpc.messages.enums import (
    MessageType,
    TransactionResolution,
    TransactionSource,
)
from posthouse.protocols.rocketmq.grpc.messages.service import EndTransactionRequest, SendMessageResponse
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient
from tools.conformance.rocketmq.grpc_answers.members import consuming, entry, producing
from tools.conformance.rocketmq.grpc_answers.receives import receiving
from tools.conformance.rocketmq.grpc_answers.sends import HOUR, later, message, send
from tools.conformance.rocketmq.grpc_answers.steps import Steps

COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK
UNDECIDED = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
TOPIC = "decided"
HALF: Any = {"topic": TOPIC, "message_type": MessageType.TRANSACTION}


def end(
    sent: SendMessageResponse, resolution: TransactionResolution, topic: str = TOPIC, **others: str
) -> EndTransactionRequest:
    [entry] = sent.entries
    said = {"message_id": entry.message_id, "transaction_id": entry.transaction_id, **others}
    return EndTransactionRequest(
        topic=Resource(name=topic), resolution=resolution, source=TransactionSource.SOURCE_CLIENT, **said
    )


async def run(steps: Steps) -> None:
    async with steps.member("deciding", producing(TOPIC)) as producer:
        await steps.call("half message", send(message(**HALF)), producer, "offset")
        await steps.call("no decision", end(await _half(producer), UNDECIDED), producer)
        half = await _half(producer)
        await steps.call("commit of another topic", end(half, COMMIT, "normal"), producer)
        await steps.call("commit of an unknown topic", end(half, COMMIT, "unknown"), producer)
        await steps.call("commit of an unknown id", end(half, COMMIT, transaction_id="none"), producer)
        await steps.call("commit without an id", end(half, COMMIT, transaction_id=""), producer)
        await steps.call("roll-back without a message id", end(half, ROLLBACK, message_id=""), producer)
        half = await steps.call(
            "half message that is committed", send(message(body=b"yes", **HALF)), producer, "offset"
        )
        await steps.call("commit", end(half, COMMIT), producer)
        await steps.call("commit again", end(half, COMMIT), producer)
        await steps.call("roll-back after the commit", end(half, ROLLBACK), producer)
        half = await steps.call(
            "half message that is rolled back", send(message(body=b"no", **HALF)), producer, "offset"
        )
        await steps.call("roll-back", end(half, ROLLBACK), producer)
        await steps.call("roll-back again", end(half, ROLLBACK), producer)
        await steps.call("commit after the roll-back", end(half, COMMIT), producer)
        await _odd_half_messages(steps)
    async with steps.member("decided", consuming("deciding", entry(TOPIC))) as consumer:
        await asyncio.sleep(1.0)  # a roll-back that did not count would bring one more
        await steps.receive(
            "receive of what is committed", receiving(TOPIC, "deciding", batch_size=32), consumer
        )


async def _half(producer: MessagingClient) -> SendMessageResponse:
    """Another one for each step: upstream forgets what it has looked up."""
    return await producer.send_all(message(**HALF))


async def _odd_half_messages(steps: Steps) -> None:
    await steps.call(
        "half message with a time", send(message(**HALF, delivery_timestamp=later(HOUR))), None, "offset"
    )
    await steps.call(
        "half message with a message group", send(message(**HALF, message_group="one")), None, "offset"
    )
    await steps.call("two half messages", send(message(**HALF), message(**HALF)), None, "offset")
    await steps.call(
        "half message to a topic of normal ones", send(message(**{**HALF, "topic": "normal"})), None, "offset"
    )
    negative = message(**HALF, orphaned_transaction_recovery_duration=Duration(seconds=-5))
    await steps.call("half message with a negative time until it is checked", send(negative), None, "offset")
