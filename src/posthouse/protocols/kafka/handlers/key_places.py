"""KeyPlaces, a Posthouse extension: where the key index has the records of a key or message id."""

from typing import Final

from posthouse.broker.access.operations import Operation
from posthouse.broker.key_index.names import NameQuery
from posthouse.broker.key_index.offset_spans import spans_of
from posthouse.broker.key_index.partition_index import Places
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.own.key_places import (
    KeyPlacesAnswer,
    KeyPlacesRange,
    KeyPlacesRequest,
    KeyPlacesResponse,
    KeyPlacesSpan,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_topic
from posthouse.protocols.kafka.unknown_topics import look_for_topic
from posthouse.records.record_names import Name, NameKind

MOST_RANGES: Final = 1000
MOST_SPANS: Final = 10_000
"""Of an answer. 160 KB."""


async def handle(context: Context, request: KeyPlacesRequest) -> KeyPlacesResponse:
    if len(request.ranges) > MOST_RANGES:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"an answer is about at most {MOST_RANGES} ranges; ask several times"
        )
    if request.gap < 0 or request.kind not in list(NameKind):
        raise Refused(ErrorCode.INVALID_REQUEST, "the gap is 0 or more, the kind 0 for a key or 1 for an id")
    query = NameQuery(Name(NameKind(request.kind), request.name))
    topic = await _topic(context, TopicId(request.topic_id))
    if not context.broker.key_index.has(topic):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, _why_not(context, topic))
    places = context.broker.key_index.search(query)
    answers = []
    left = MOST_SPANS
    for each in request.ranges:
        answer = KeyPlacesAnswer(next=each.first)
        if left:
            await _fill(topic, each, places, answer, gap=request.gap, most=left)
        left -= len(answer.spans)
        answers.append(answer)
    return KeyPlacesResponse(ranges=answers)


async def _topic(context: Context, id: TopicId) -> Topic:
    """Raises Refused and PosthouseError."""
    if context.broker.topics.find_by_id(id) is None:
        await look_for_topic(context, "", id)
    try:
        topic = context.broker.topic_by_id(id)
    except PosthouseError as error:
        raise Refused(code_of(error, by_id=True), str(error)) from None
    require_on_topic(context, Operation.READ, topic.name)
    return topic


def _why_not(context: Context, topic: Topic) -> str:
    if topic.config.index_keys:
        return "this broker has no key index"
    return f"topic {topic.name!r} has no key index: its index.keys is false"


async def _fill(
    topic: Topic,
    wanted: KeyPlacesRange,
    places: Places,
    answer: KeyPlacesAnswer,
    *,
    gap: int,
    most: int,
) -> None:
    try:
        partition = topic.existing_partition(wanted.partition)
        rising = places(partition, wanted.first, wanted.end)
        found = await spans_of(rising, wanted.end, gap=gap, most=most)
    except PosthouseError as error:
        answer.error_code = code_of(error, by_id=True)
        return
    answer.next = found.next
    answer.spans = [KeyPlacesSpan(first=first, end=end) for first, end in found.spans]


def _refuse(context: Context, request: KeyPlacesRequest, code: ErrorCode, message: str) -> KeyPlacesResponse:
    return KeyPlacesResponse(error_code=code, error_message=message)


HANDLER = Handler(key=10_003, handle=handle, refuse=_refuse)
