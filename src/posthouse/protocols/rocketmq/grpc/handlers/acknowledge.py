"""What becomes of received messages: acknowledged, kept for longer or back after a while, or dead."""

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from posthouse.broker.access.operations import Operation
from posthouse.broker.subscriptions.leases import Acknowledgement, Verdict
from posthouse.model.errors import BadRequest, NotLeased, PosthouseError
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.grpc.handlers.receive import LONGEST_LEASE_SECONDS
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Status
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)
from posthouse.protocols.rocketmq.grpc.receipts import Receipt, decode_receipt
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc
from posthouse.protocols.rocketmq.grpc.statuses import OK, Refused, status_of

MOST_ENTRIES: Final = 1024
"""In one request."""


def acknowledge(
    rpc: Rpc, request: AckMessageRequest, answer: Answer[AckMessageResponse]
) -> Coroutine[Any, Any, None]:
    group, topic = rpc.group(request.group), rpc.topic(request.topic, Operation.READ)
    if not 0 < len(request.entries) <= MOST_ENTRIES:
        raise BadRequest(f"a request has 1 to {MOST_ENTRIES} entries, and not {len(request.entries)}")
    return _acknowledge(rpc, group, topic, request.entries, answer)


async def _acknowledge(
    rpc: Rpc,
    group: GroupId,
    topic: Topic,
    entries: Sequence[AckMessageEntry],
    answer: Answer[AckMessageResponse],
) -> None:
    statuses: list[Status] = [OK] * len(entries)
    valid: dict[tuple[PartitionId, MemberId], dict[int, list[int]]] = {}
    """By partition and member: the numbers of the entries, by offset."""
    for number, entry in enumerate(entries):
        try:
            receipt = _receipt(rpc, group, topic, entry.receipt_handle)
        except (PosthouseError, Refused) as error:
            statuses[number] = status_of(error)
        else:
            partition = topic.partition(receipt.partition)
            valid.setdefault((partition, receipt.member), {}).setdefault(receipt.offset, []).append(number)
    for (partition, member), numbers in valid.items():
        offsets = sorted(numbers)
        wrong = await _accept(rpc, group, member, partition, offsets)
        if isinstance(wrong, NotLeased) and len(offsets) > 1:
            # A lease has just ended. The others are acknowledged all the same.
            each_wrong = [await _accept(rpc, group, member, partition, [offset]) for offset in offsets]
        else:
            each_wrong = [wrong] * len(offsets)
        for offset, failure in zip(offsets, each_wrong, strict=True):
            if failure is not None:
                for number in numbers[offset]:
                    statuses[number] = status_of(failure)
    is_uniform = all(each.code == statuses[0].code for each in statuses)
    status = statuses[0] if is_uniform else Status(code=Code.MULTIPLE_RESULTS, message="the results differ")
    if status.code != Code.OK:
        rpc.call.metrics.errors += 1
    results_of = tuple(
        AckMessageResultEntry(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=statuses[number]
        )
        for number, entry in enumerate(entries)
    )
    answer.give(AckMessageResponse(status=status, entries=results_of))


async def _accept(
    rpc: Rpc, group: GroupId, member: MemberId, partition: PartitionId, offsets: Sequence[int]
) -> PosthouseError | None:
    """All of them, or none."""
    said = [Acknowledgement(offset, offset, [Verdict.ACCEPT]) for offset in offsets]
    results = await rpc.server.broker.subscriptions.acknowledge(group, member, {partition: said})
    return results[partition]


def change_invisible_duration(
    rpc: Rpc, request: ChangeInvisibleDurationRequest, answer: Answer[ChangeInvisibleDurationResponse]
) -> Coroutine[Any, Any, None]:
    group, topic = rpc.group(request.group), rpc.topic(request.topic, Operation.READ)
    receipt = _receipt(rpc, group, topic, request.receipt_handle)
    given = request.invisible_duration
    seconds = -1.0 if given is None else given.ms / 1000
    if not 0 <= seconds <= LONGEST_LEASE_SECONDS:
        raise Refused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"messages can be invisible for up to {LONGEST_LEASE_SECONDS:.0f} s, and not {seconds:g}",
        )
    return _change(rpc, group, topic, receipt, seconds, answer, counts=not request.suspend)


async def _change(
    rpc: Rpc,
    group: GroupId,
    topic: Topic,
    receipt: Receipt,
    seconds: float,
    answer: Answer[ChangeInvisibleDurationResponse],
    *,
    counts: bool,
) -> None:
    verdict = Verdict.RENEW if seconds else Verdict.RELEASE
    await _settle(rpc, group, topic, receipt, verdict, seconds, counts=counts)
    answer.give(ChangeInvisibleDurationResponse(status=OK, receipt_handle=receipt.encode()))


def forward_to_dead_letter_queue(
    rpc: Rpc,
    request: ForwardMessageToDeadLetterQueueRequest,
    answer: Answer[ForwardMessageToDeadLetterQueueResponse],
) -> Coroutine[Any, Any, None]:
    group, topic = rpc.group(request.group), rpc.topic(request.topic, Operation.READ)
    return _bury(rpc, group, topic, _receipt(rpc, group, topic, request.receipt_handle), answer)


async def _bury(
    rpc: Rpc,
    group: GroupId,
    topic: Topic,
    receipt: Receipt,
    answer: Answer[ForwardMessageToDeadLetterQueueResponse],
) -> None:
    await _settle(rpc, group, topic, receipt, Verdict.REJECT)
    answer.give(ForwardMessageToDeadLetterQueueResponse(status=OK))


async def _settle(
    rpc: Rpc,
    group: GroupId,
    topic: Topic,
    receipt: Receipt,
    verdict: Verdict,
    seconds: float | None = None,
    *,
    counts: bool = True,
) -> None:
    partition = topic.partition(receipt.partition)
    said = {partition: [Acknowledgement(receipt.offset, receipt.offset, [verdict], seconds, counts)]}
    results = await rpc.server.broker.subscriptions.acknowledge(group, receipt.member, said)
    if (error := results[partition]) is not None:
        raise error


def _receipt(rpc: Rpc, group: GroupId, topic: Topic, handle: str) -> Receipt:
    """Of the message as it is leased now. Raises Refused and NotLeased."""
    try:
        receipt = decode_receipt(handle)
    except BadRequest as error:
        raise Refused(Code.INVALID_RECEIPT_HANDLE, str(error)) from error
    # A topic of the same name may have had more queues: no progress is found there.
    subscribed = rpc.server.broker.subscriptions.find(group, topic.partition(receipt.partition))
    if (
        subscribed is None
        or subscribed.generation != receipt.generation
        or subscribed.holder(receipt.offset) != receipt.member
        or subscribed.progress.deliveries(receipt.offset) + 1 != receipt.deliveries
    ):
        raise NotLeased(
            f"group {group!r}, topic {topic.name!r}, queue {receipt.partition}: the message at offset "
            f"{receipt.offset} was given to somebody else or is settled, or the group was reset; its receipt "
            "has expired"
        )
    return receipt
