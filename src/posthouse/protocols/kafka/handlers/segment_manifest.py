"""SegmentManifest, a Posthouse extension: where clients find records in the object store."""

from uuid import UUID

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import TopicId
from posthouse.protocols.kafka.codec.own.segment_manifest import (
    READ_COMMITTED,
    AbortedTransactionPart,
    SegmentManifestAnswer,
    SegmentManifestRange,
    SegmentManifestRequest,
    SegmentManifestResponse,
    SegmentPart,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_topic
from posthouse.protocols.kafka.unknown_topics import look_for_topic
from posthouse.storage.segment_objects import ObjectRange, RangeManifest, SegmentObjects

MOST_RANGES = 1000


async def handle(context: Context, request: SegmentManifestRequest) -> SegmentManifestResponse:
    objects = _objects(context, request)
    if len(request.ranges) > MOST_RANGES:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"a manifest has at most {MOST_RANGES} ranges; ask several times"
        )
    answers = [SegmentManifestAnswer(next=each.end) for each in request.ranges]
    wanted: list[tuple[SegmentManifestAnswer, ObjectRange]] = []
    await _look_for_topics(context, request)
    for answer, each in zip(answers, request.ranges, strict=True):
        try:
            wanted.append((answer, _wanted(context, each)))
        except (PosthouseError, Refused) as error:
            answer.error_code = code_of(error, by_id=True)

    def may_read(topic_id: TopicId | None) -> bool:
        topic = None if topic_id is None else context.broker.topics.find_by_id(topic_id)
        if topic is None:
            # One who may change permissions could see it anyway.
            return context.guard.may(Operation.ALTER, Kind.CLUSTER, CLUSTER)
        return context.guard.may(Operation.READ, Kind.TOPIC, topic.name)

    manifest = await objects.manifest(
        [each for _, each in wanted],
        committed=request.isolation_level == READ_COMMITTED,
        signed=request.is_signed,
        hold=None if request.hold == ZERO_UUID else UUID(bytes=request.hold),
        may_read=may_read,
    )
    for (answer, _), found in zip(wanted, manifest.ranges, strict=True):
        _fill(answer, found)
    return SegmentManifestResponse(
        hold=ZERO_UUID if manifest.hold is None else manifest.hold.bytes, ranges=answers
    )


def _objects(context: Context, request: SegmentManifestRequest) -> SegmentObjects:
    objects = context.broker.segment_objects
    if objects is None:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "the log of this broker is on its own disk")
    if request.is_signed and not objects.can_sign:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "the object store of this cluster has no signed addresses; read it with an address of your own",
        )
    return objects


async def _look_for_topics(context: Context, request: SegmentManifestRequest) -> None:
    """Once for all that are not known. Raises Unavailable."""
    for topic_id in {each.topic_id for each in request.ranges}:
        if context.broker.topics.find_by_id(TopicId(topic_id)) is None:
            await look_for_topic(context, "", TopicId(topic_id))
            return


def _wanted(context: Context, wanted: SegmentManifestRange) -> ObjectRange:
    topic = context.broker.topic_by_id(TopicId(wanted.topic_id))
    require_on_topic(context, Operation.READ, topic.name)
    return ObjectRange(
        partition=topic.existing_partition(wanted.partition), first=wanted.first, end=wanted.end
    )


def _fill(answer: SegmentManifestAnswer, found: RangeManifest) -> None:
    if found.refusal is not None:
        answer.error_code = code_of(found.refusal, by_id=True)
    answer.next = found.next
    answer.aborted = [
        AbortedTransactionPart(producer_id=each.producer_id, first=each.first_offset, last=each.last_offset)
        for each in found.aborted
    ]
    answer.segments = [
        SegmentPart(
            address=each.address,
            start=each.start,
            size=each.size,
            base=each.base,
            last=each.last,
            generation=each.generation,
        )
        for each in found.segments
    ]


def _refuse(
    context: Context, request: SegmentManifestRequest, code: ErrorCode, message: str
) -> SegmentManifestResponse:
    return SegmentManifestResponse(error_code=code, error_message=message)


HANDLER = Handler(key=10_001, handle=handle, refuse=_refuse)
