"""Produce: the hot path. The order of requests is the order of offsets."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeAlias

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.appending import Appended, Produced
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import (
    CorruptBatch,
    Inflated,
    Malformed,
    MissingKeys,
    PosthouseError,
    Unavailable,
    UnknownTopic,
)
from posthouse.model.ids import FIRST_KEYED, TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.errors import CloseWithoutResponse, ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Deferred, Handler
from posthouse.protocols.kafka.permissions import forbidden, require_on_transactional_id
from posthouse.protocols.kafka.unknown_topics import look_for_topic
from posthouse.records.batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    CODEC_MASK,
    COUNT_AT,
    HEADER_SIZE,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
)
from posthouse.records.compression import Codec

_FIRST_WITH_TOPIC_ID = 13
_FIRST_WITH_ZSTD = 7
_FIRST_THAT_ADDS_PARTITIONS = 12
_LOW_ATTRIBUTES_AT = ATTRIBUTES_AT + 1
_OWNED = FIRST_KEYED >> 56
_NEGATIVE = 0x80
"""First bytes of producer ids: in this range an id is bound to a user, or to an idempotency key."""

_OFFENCES = (CorruptBatch, Inflated, Malformed)
"""Errors that a well-behaved client does not cause repeatedly."""

_Results: TypeAlias = list[Appended | PosthouseError]


def handle(
    context: Context, request: ProduceRequest, *, has_looked: bool = False
) -> Deferred | ProduceResponse | Coroutine[Any, Any, Message | None] | None:
    """`has_looked`: unknown topics were looked for, and are unknown to all brokers."""
    _check(context, request)
    by_id = context.version >= _FIRST_WITH_TOPIC_ID
    batches: list[Produced] = []
    pending: list[PartitionProduceResponse] = []
    topics: list[TopicProduceResponse] = []
    has_failed = False
    for data in request.topic_data:
        topic = _topic(context, data, by_id)
        answers = []
        for partition in data.partition_data:
            answer = PartitionProduceResponse(index=partition.index, base_offset=-1)
            answers.append(answer)
            if not isinstance(topic, Topic):
                if isinstance(topic, UnknownTopic) and not has_looked:
                    return _look_and_handle(context, request, data, by_id)
                _fail(answer, topic, by_id)
                has_failed = True
            elif _acceptable(context, partition, answer):
                batches.append(Produced(topic, partition.index, partition.records))  # type: ignore[arg-type]
                pending.append(answer)
            else:
                has_failed = True
        topics.append(
            TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)
        )

    def finish(results: _Results) -> ProduceResponse | None:
        failed = has_failed
        for answer, result in zip(pending, results, strict=True):
            if isinstance(result, Appended):
                answer.base_offset = result.base_offset
                answer.log_append_time_ms = result.append_time
                answer.log_start_offset = result.log_start
            else:
                _fail(answer, result)
                failed = True
                if isinstance(result, _OFFENCES):
                    context.offended()
        if failed and request.acks:
            context.count_error()
        if request.acks:
            return ProduceResponse(responses=topics)
        _check_all_taken(topics)
        return None

    writer = None if request.transactional_id is None else _writer(context, request.transactional_id)
    if context.broker.must_unpack(batches):
        return Deferred(asyncio.ensure_future(context.broker.append_unpacked(batches, writer)), finish)
    appending = context.broker.append(batches, writer)
    if appending.future is None:
        return finish(appending.results([]))
    return Deferred(appending.future, lambda outcomes: finish(appending.results(outcomes)))


async def _look_and_handle(
    context: Context, request: ProduceRequest, data: TopicProduceData, by_id: bool
) -> Message | None:
    """Another broker may have created the topic."""
    try:
        await look_for_topic(context, data.name, TopicId(data.topic_id) if by_id else None)
    except Unavailable as error:
        check_begins_no_sequence(request, str(error))
        raise
    answer = handle(context, request, has_looked=True)
    if not isinstance(answer, Deferred):
        assert not isinstance(answer, Coroutine)
        return answer
    # The connection may end meanwhile, and the commit goes on.
    return answer.finish(await undisturbed(answer.future))


def check_begins_no_sequence(request: ProduceRequest, reason: str) -> None:
    """Call before a request is refused that storage has not seen and that clients repeat. Raises
    CloseWithoutResponse if it has the first batch of a producer.

    A log that does not know a producer accepts any sequence. The second batch, which may be in flight on this
    connection, would be stored without the first, and the first would be out of order forever. After the
    connection is closed, clients repeat all unanswered batches in order. Storage itself remembers the first
    batches that it could not write.
    """
    for data in request.topic_data:
        for partition in data.partition_data:
            if _begins_sequence(partition.records):
                raise CloseWithoutResponse(
                    f"the first batch of a producer is refused, and later ones must not precede it: {reason}"
                )


def _begins_sequence(records: bytes | bytearray | memoryview | None) -> bool:
    """Whether it is the first batch of an idempotent producer. Without a producer id, some clients send the
    sequence 0, too."""
    if records is None or len(records) < HEADER_SIZE or records[PRODUCER_ID_AT] >= _NEGATIVE:
        return False
    return int.from_bytes(records[BASE_SEQUENCE_AT:COUNT_AT], "big") == 0


def _check(context: Context, request: ProduceRequest) -> None:
    if request.transactional_id is not None:
        require_on_transactional_id(context, Operation.WRITE, request.transactional_id)
    if request.acks not in (-1, 0, 1):
        raise Refused(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.acks}: only -1, 0 and 1 have a meaning"
        )


def _writer(context: Context, transactional_id: str) -> TransactionalWriter:
    adds_partitions = context.version >= _FIRST_THAT_ADDS_PARTITIONS
    return TransactionalWriter(
        id=transactional_id, origin=context.origin, epoch_per_transaction=adds_partitions
    )


def _topic(context: Context, data: TopicProduceData, by_id: bool) -> Topic | PosthouseError | Refused:
    name = data.name
    try:
        if by_id:
            topic = context.broker.topic_by_id(TopicId(data.topic_id))
            name = topic.name
        if not context.guard.allows(Operation.WRITE, Kind.TOPIC, name):
            return forbidden(Operation.WRITE, Kind.TOPIC)
        return topic if by_id else context.broker.topic(name)
    except PosthouseError as error:
        return error


def _acceptable(context: Context, partition: PartitionProduceData, answer: PartitionProduceResponse) -> bool:
    """Check the rules that only Kafka has; sets the error in `answer`. The broker checks the rest."""
    records = partition.records
    if not records:
        answer.error_code = ErrorCode.INVALID_RECORD
        answer.error_message = "there is no record batch"
        return False
    if len(records) <= _LOW_ATTRIBUTES_AT:
        return True
    attributes = records[_LOW_ATTRIBUTES_AT]
    codec = attributes & CODEC_MASK
    if codec >= Codec.ZSTD and (codec > Codec.ZSTD or context.version < _FIRST_WITH_ZSTD):
        answer.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        answer.error_message = f"compression {codec} has no place in version {context.version}"
        return False
    if len(records) < HEADER_SIZE or not _OWNED <= records[PRODUCER_ID_AT] < _NEGATIVE:
        return True
    if attributes & TRANSACTIONAL_BIT:
        return True  # transactions check their producers themselves
    return _is_own_producer(context, int.from_bytes(records[PRODUCER_ID_AT:PRODUCER_EPOCH_AT], "big"), answer)


def _is_own_producer(context: Context, producer_id: int, answer: PartitionProduceResponse) -> bool:
    """Check that the producer id belongs to this user: batches of another user would break the sequence of
    its owner."""
    guard = context.guard
    ids = context.broker.transactions.producer_ids
    if ids.belongs_to(producer_id, guard.principal.name):
        return True
    if guard.may(Operation.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER):
        return True
    guard.note_refused(Operation.WRITE, f"producer-id:{producer_id}", "it was given to another user")
    answer.error_code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    answer.error_message = f"producer id {producer_id} was given to another user; ask for one of your own"
    return False


def _fail(answer: PartitionProduceResponse, error: PosthouseError | Refused, by_id: bool = False) -> None:
    answer.error_code = code_of(error, by_id=by_id)
    answer.error_message = str(error)
    if isinstance(error, MissingKeys):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message="has no key")
            for position in error.positions
        ]


def _check_all_taken(topics: list[TopicProduceResponse]) -> None:
    """Raises if any partition failed: closing the connection is the only way to tell a client with acks 0."""
    for topic in topics:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise CloseWithoutResponse(
                    f"it asked for no response, and partition {answer.index} of {topic.name!r} "
                    f"did not take its records: {answer.error_message}"
                )


def _refuse(context: Context, request: ProduceRequest, code: ErrorCode, message: str) -> ProduceResponse:
    if not request.acks:
        raise CloseWithoutResponse(message)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1, error_message=message
                    )
                    for partition in data.partition_data
                ],
            )
            for data in request.topic_data
        ]
    )


HANDLER = Handler(key=0, handle=handle, refuse=_refuse, counts_errors=True)
