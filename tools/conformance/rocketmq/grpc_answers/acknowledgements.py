"""What becomes of received messages: acknowledged, kept for longer or shorter, or dead."""

from posthouse.protocols.rocketmq.grpc.messages.definition import Message, Resource
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageEntry,
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    ForwardMessageToDeadLetterQueueRequest,
)
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient, receipt
from tools.conformance.rocketmq.grpc_answers.members import PUSH, consuming, entry
from tools.conformance.rocketmq.grpc_answers.receives import LEASE_SECONDS, receiving, seconds
from tools.conformance.rocketmq.grpc_answers.sends import FIFO, message, send
from tools.conformance.rocketmq.grpc_answers.steps import Steps, until

TOPIC, GROUP = "acknowledged", "acknowledging"
AFTER_LEASE = LEASE_SECONDS + 3.0


def ack(*receipts: str, topic: str = TOPIC, group: str = GROUP) -> AckMessageRequest:
    entries = tuple(AckMessageEntry(message_id="id", receipt_handle=each) for each in receipts)
    return AckMessageRequest(group=Resource(name=group), topic=Resource(name=topic), entries=entries)


def change(
    held: str, lease: float | None, *, topic: str = TOPIC, group: str = GROUP, suspend: bool | None = None
) -> ChangeInvisibleDurationRequest:
    return ChangeInvisibleDurationRequest(
        group=Resource(name=group),
        topic=Resource(name=topic),
        receipt_handle=held,
        invisible_duration=seconds(lease),
        message_id="id",
        suspend=suspend,
    )


def bury(held: str, topic: str = "buried", group: str = "burying") -> ForwardMessageToDeadLetterQueueRequest:
    return ForwardMessageToDeadLetterQueueRequest(
        group=Resource(name=group),
        topic=Resource(name=topic),
        receipt_handle=held,
        message_id="id",
        delivery_attempt=1,
        max_delivery_attempts=1,
    )


async def run(steps: Steps) -> None:
    async with steps.member("acknowledging", consuming(GROUP, entry(TOPIC))) as client:
        for number in range(6):
            await steps.call(f"send of what is acknowledged, {number}", send(message(TOPIC, b"%d" % number)))
        got = [await _received(steps, client, number) for number in range(6)]
        await _acknowledge(steps, client, got)
        await _bad_receipts(steps, client, got)
        await _change(steps, client, got)
    async with steps.member("redelivering", consuming("redelivering", entry("redelivered"))) as client:
        await _expire(steps, client)
    async with steps.member("burying", consuming("burying", entry("buried"), kind=PUSH)) as client:
        await _bury(steps, client)


async def _received(steps: Steps, client: MessagingClient, number: int) -> str:
    [found] = await steps.receive(
        f"receive of what is acknowledged, {number}", receiving(TOPIC, GROUP), client
    )
    return receipt(found)


async def _acknowledge(steps: Steps, client: MessagingClient, got: list[str]) -> None:
    await steps.call("acknowledge", ack(got[0]), client)
    await steps.call("acknowledge again", ack(got[0]), client)
    await steps.call("acknowledge two", ack(got[1], got[2]), client)
    await steps.call("acknowledge the same twice in a request", ack(got[3], got[3]), client)


async def _bad_receipts(steps: Steps, client: MessagingClient, got: list[str]) -> None:
    await steps.call("acknowledge a receipt that is none", ack("no receipt"), client)
    await steps.call("acknowledge an empty receipt", ack(""), client)
    await steps.call("acknowledge nothing", ack(), client)
    await steps.call("acknowledge with the receipt of another topic", ack(got[4], topic="received"), client)
    await steps.call("acknowledge for an unknown topic", ack(got[4], topic="unknown"), client)
    await steps.call(
        "acknowledge for a topic with a blank in its name", ack(got[4], topic="an swers"), client
    )
    await steps.call("acknowledge for another group", ack(got[4], group="others"), client)
    await steps.call("acknowledge for an unknown group", ack(got[4], group="strangers"), client)
    await steps.call("acknowledge without a group", ack(got[4], group=""), client)
    await steps.call("acknowledge a good receipt and one that is none", ack(got[5], "no receipt"), client)


async def _change(steps: Steps, client: MessagingClient, got: list[str]) -> None:
    held = got[4]
    await steps.call("change to a negative duration", change(held, -1), client)
    await steps.call("change without a duration", change(held, None), client)
    await steps.call("change to 13 hours", change(held, 13 * 3600), client)
    await steps.call("change of a receipt that is none", change("no receipt", 60), client)
    await steps.call("change of an empty receipt", change("", 60), client)
    await steps.call("change for an unknown topic", change(held, 60, topic="unknown"), client)
    await steps.call("change for an unknown group", change(held, 60, group="strangers"), client)
    await steps.call("change of what is acknowledged", change(got[0], 60), client)
    await steps.call("change to a minute", change(held, 60), client)
    await steps.call("change again, with the old receipt", change(held, 60), client)
    await steps.call("acknowledge with the old receipt", ack(held), client)


async def _expire(steps: Steps, client: MessagingClient) -> None:
    """Upstream gives a message again some seconds after its lease has ended."""
    topic, group = "redelivered", "redelivering"
    request = receiving(topic, group, lease=LEASE_SECONDS, poll=20.0)
    await steps.call("send of what comes again", send(message(topic, b"again")))
    [first] = await steps.receive("receive of what comes again", request, client)
    changed = await steps.call(
        "change to another duration", change(receipt(first), LEASE_SECONDS, topic=topic, group=group), client
    )
    await until(AFTER_LEASE)
    late = ack(changed.receipt_handle, topic=topic, group=group)
    await steps.call("acknowledge after the lease", late, client)
    second = await steps.receive("receive after the lease", request, client)
    await steps.call("acknowledge with the receipt of the first delivery", late, client)
    for each in second:
        again = change(receipt(each), 1, topic=topic, group=group)
        await steps.call("change to a second", again, client)
    await until(3.0)
    third = await steps.receive("receive after a second", request, client)
    for each in third:
        await steps.call("change to no time", change(receipt(each), 0, topic=topic, group=group), client)
    await until(3.0)
    fourth = await steps.receive("receive after no time", request, client)
    await steps.call("acknowledge in the end", ack(*map(receipt, fourth), topic=topic, group=group), client)


async def _bury(steps: Steps, client: MessagingClient) -> None:
    sent = message("buried", b"dead", {"own": "value"}, message_type=FIFO, message_group="one", tag="red")
    await steps.call("send of what dies", send(sent))
    found: list[Message] = await steps.receive(
        "receive of what dies", receiving("buried", "burying", auto_renew=True, lease=None), client
    )
    await steps.call("bury a receipt that is none", bury("no receipt"), client)
    await steps.call("bury for an unknown topic", bury(receipt(found[0]), topic="unknown"), client)
    await steps.call("bury for an unknown group", bury(receipt(found[0]), group="strangers"), client)
    await steps.call("bury", bury(receipt(found[0])), client)
    await steps.call("bury again", bury(receipt(found[0])), client)
    await steps.call(
        "acknowledge what is buried", ack(receipt(found[0]), topic="buried", group="burying"), client
    )
