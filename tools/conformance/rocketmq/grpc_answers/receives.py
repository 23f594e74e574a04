"""Receiving: what there is, filtered, nothing, and what nobody can get."""

from typing import Any

from posthouse.protocols.rocketmq.grpc.messages.definition import FilterExpression, MessageQueue, Resource
from posthouse.protocols.rocketmq.grpc.messages.enums import FilterType
from posthouse.protocols.rocketmq.grpc.messages.service import ReceiveMessageRequest
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient
from tools.conformance.rocketmq.grpc_answers.members import consuming, entry
from tools.conformance.rocketmq.grpc_answers.sends import message, send
from tools.conformance.rocketmq.grpc_answers.steps import Steps, connected

POLL_SECONDS = 5.0
"""The shortest that upstream takes."""
LEASE_SECONDS = 10.0
"""Likewise."""


def receiving(
    topic: str = "received",
    group: str = "receivers",
    *,
    queue: int = -1,
    lease: float | None = 60.0,
    poll: float | None = POLL_SECONDS,
    tag: str | None = None,
    sql: str | None = None,
    **others: Any,
) -> ReceiveMessageRequest:
    expression = FilterExpression(type=FilterType.TAG, expression=tag or "*")
    if sql is not None:
        expression = FilterExpression(type=FilterType.SQL, expression=sql)
    wanted: dict[str, Any] = {
        "group": Resource(name=group),
        "message_queue": MessageQueue(topic=Resource(name=topic), id=queue),
        "filter_expression": expression,
        "batch_size": 1,
        "invisible_duration": seconds(lease),
        "long_polling_timeout": seconds(poll),
        **others,
    }
    return ReceiveMessageRequest(**wanted)


def seconds(given: float | None) -> Duration | None:
    return None if given is None else Duration.from_ms(int(given * 1000))


async def run(steps: Steps) -> None:
    async with connected(steps.endpoints, "no settings") as client:
        await steps.receive("receive without settings", receiving(), client)
    async with steps.member("receiver", consuming("receivers", entry("received"))) as client:
        await _nothing(steps, client)
        await _messages(steps, client)
        await _bad(steps, client)
        await _bad_durations(steps, client)
    async with steps.member("filtering", consuming("filtering", entry("filtered"))) as client:
        await _filters(steps, client)
    async with connected(steps.endpoints, None) as nobody:
        await steps.receive("receive by a client without an id", receiving(), nobody)


async def _nothing(steps: Steps, client: MessagingClient) -> None:
    await steps.receive("receive of nothing", receiving(), client)
    await steps.receive("receive of nothing with an attempt", receiving(attempt_id="attempt"), client)


async def _messages(steps: Steps, client: MessagingClient) -> None:
    for number in range(4):
        sent = message("received", b"%d" % number, {"own": "value"}, tag="red", keys=("a", "b"))
        await steps.call(f"send of what is received, {number}", send(sent))
    await steps.receive("receive", receiving(), client)
    await steps.receive("receive of any of a queue", receiving(queue=0), client)
    await steps.receive("receive of two messages", receiving(batch_size=32), client)
    await steps.receive("receive when all are leased", receiving(), client)


async def _bad(steps: Steps, client: MessagingClient) -> None:
    await steps.receive("receive from an unknown topic", receiving("unknown"), client)
    await steps.receive("receive from a topic with a blank in its name", receiving("an swers"), client)
    await steps.receive("receive in an unknown group", receiving(group="strangers"), client)
    await steps.receive("receive in a group with a blank in its name", receiving(group="a group"), client)
    await steps.receive("receive without a group", receiving(group=""), client)
    await steps.receive("receive without a queue", receiving(message_queue=None), client)
    await steps.receive("receive from a queue that is not there", receiving(queue=99), client)
    await steps.receive("receive of no message", receiving(batch_size=0), client)
    await steps.receive("receive of a negative number", receiving(batch_size=-1), client)
    await steps.receive("receive by SQL that is none", receiving(sql="own = = 'value'"), client)
    await steps.receive("receive by a blank tag", receiving(tag="red || "), client)


async def _bad_durations(steps: Steps, client: MessagingClient) -> None:
    await steps.receive("receive for no time", receiving(lease=0), client)
    await steps.receive("receive for a negative time", receiving(lease=-1), client)
    await steps.receive("receive for a second", receiving("normal", "others", lease=1), client)
    await steps.receive("receive for 13 hours", receiving(lease=13 * 3600), client)
    await steps.receive("receive without a time", receiving(lease=None), client)
    await steps.receive("receive with a call that ends before the poll", receiving(poll=20), client, 4.0)
    await steps.receive("receive without a poll", receiving(poll=0), client)
    await steps.receive("receive with a negative poll", receiving(poll=-1), client)


async def _filters(steps: Steps, client: MessagingClient) -> None:
    await steps.receive(
        "receive by a tag of no message", receiving("filtered", "filtering", tag="green"), client
    )
    await steps.call("send of a red message", send(message("filtered", b"first", tag="red")))
    await steps.call("send of a blue message", send(message("filtered", b"second", tag="blue")))
    red_or_blue = receiving("filtered", "filtering", tag="red || blue", batch_size=32)
    await steps.receive("receive by two tags", red_or_blue, client)
    sent = message("filtered", b"third", {"own": "7"}, tag="green")
    await steps.call("send of a message with a number", send(sent))
    by_sql = receiving("filtered", "filtering", sql="own BETWEEN 5 AND 9", batch_size=32)
    await steps.receive("receive by SQL", by_sql, client)
