"""Records produced: sent in any of the forms of `ingest`, with an idempotency key or without."""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Quota
from posthouse.broker.appending import Appended, Produced
from posthouse.broker.idempotency.keyed_producer import IdempotencyKey, KeyedProducer
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.handlers.topics import OfTopic
from posthouse.protocols.admin.ingest.bodies import RECORD_BODIES
from posthouse.protocols.admin.ingest.json_bodies import PartitionNumber, Timestamp
from posthouse.protocols.admin.ingest.sent_records import SentRecord, SentRecords
from posthouse.records.builder import BatchBuilder
from posthouse.records.partitioner import partition_of

_MOST_BODY: Final = 2 * 1024 * 1024
_OF_VALUES: Final = "For a body that is the value of a record:"


class ProduceParameters(OfTopic, frozen=True, kw_only=True, forbid_unknown_fields=True):
    raw: Annotated[bool, Meta(description="The body is the value of a record, whatever its type is.")] = False
    key: Annotated[str | None, Meta(description=f"{_OF_VALUES} its key.")] = None
    key_encoding: Annotated[
        Literal["text", "base64"], Meta(description=f"{_OF_VALUES} how `key` is written.")
    ] = "text"
    partition: Annotated[PartitionNumber | None, Meta(description=f"{_OF_VALUES} where it goes.")] = None
    timestamp: Annotated[
        Timestamp | None, Meta(description=f"{_OF_VALUES} milliseconds since 1970; now, if not given.")
    ] = None


class ProducedRecord(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    offset: Annotated[int | None, Meta(description="null if the record was refused.")]
    error: Annotated[str | None, Meta(description="Why the partition refused its records.")] = None


class ProducedRecords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    records: Annotated[list[ProducedRecord], Meta(description="In the order of the request.")]
    repeated: Annotated[
        bool,
        Meta(
            description="An earlier request with the idempotency key has produced them; this one did nothing."
        ),
    ] = False


class _Batches:
    """The records of a request, one batch for each partition."""

    def __init__(self, sent: Sequence[SentRecord], choose: Callable[[SentRecord], int], now_ms: int) -> None:
        self._sent = sent
        self._choose = choose
        self._now_ms = now_ms
        self.places: list[tuple[int, int]] = []
        """Of each record: its partition, and its number in the batch."""

    def build(self, topic: Topic, new_batch: Callable[[], BatchBuilder]) -> list[Produced]:
        builders: dict[int, BatchBuilder] = {}
        self.places.clear()
        for record in self._sent:
            partition = self._choose(record)
            builder = builders.get(partition)
            if builder is None:
                builder = builders[partition] = new_batch()
            self.places.append((partition, builder.count))
            timestamp = self._now_ms if record.timestamp is None else record.timestamp
            builder.add(record.key, record.value, record.headers, timestamp)
        return [Produced(topic, each, memoryview(builder.build())) for each, builder in builders.items()]


async def _produce(context: CallContext, parameters: ProduceParameters, body: SentRecords) -> ProducedRecords:
    context.require(Operation.WRITE, Kind.TOPIC, parameters.topic)
    topic = context.broker.topic(parameters.topic)
    for record in body.records:
        if record.partition is not None:
            context.broker.partition(topic, record.partition)
    context.guard.note("produce", f"{Kind.TOPIC}:{topic.name}", f"{len(body.records)} records")
    if body.idempotency_key is None:
        return await _append(context, topic, body)
    return await _append_once(context, topic, body, body.idempotency_key)


async def _append(context: CallContext, topic: Topic, body: SentRecords) -> ProducedRecords:
    now = context.broker.now_ms()
    built = _Batches(body.records, _partitioner(topic.partitions, now), now)
    batches = built.build(topic, BatchBuilder)
    size = sum(len(each.batch) for each in batches)
    if context.broker.must_unpack(batches):
        results = await context.broker.append_unpacked(batches, None)
    else:
        results = await context.broker.append(batches).wait()
    await context.charge(Quota.WRITTEN, size)
    errors = [each for each in results if isinstance(each, PosthouseError)]
    if len(errors) == len(results):
        raise errors[0]
    return ProducedRecords(records=_produced(batches, results, built.places))


async def _append_once(context: CallContext, topic: Topic, body: SentRecords, key: str) -> ProducedRecords:
    now = context.broker.now_ms()
    built: _Batches | None = None

    def make(topic: Topic, producer: KeyedProducer) -> list[Produced]:
        nonlocal built
        built = _Batches(body.records, _partitioner(producer.partitions, producer.id), now)
        return built.build(
            topic,
            lambda: BatchBuilder(
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequence,
            ),
        )

    owner = str(context.guard.principal)
    done = await context.broker.idempotent_appends.append(
        topic, IdempotencyKey(owner=owner, text=key), body.fingerprint, make
    )
    await context.charge(Quota.WRITTEN, sum(len(each.batch) for each in done.batches))
    assert built is not None
    return ProducedRecords(
        records=_produced(done.batches, done.appended, built.places), repeated=done.is_repeated
    )


def _partitioner(partitions: int, number: int) -> Callable[[SentRecord], int]:
    """Records without a key are together, as with Kafka's clients: in a partition that follows from the
    number."""

    def choose(record: SentRecord) -> int:
        if record.partition is not None:
            return record.partition
        return number % partitions if record.key is None else partition_of(record.key, partitions)

    return choose


def _produced(
    batches: Sequence[Produced],
    results: Sequence[Appended | PosthouseError],
    places: Sequence[tuple[int, int]],
) -> list[ProducedRecord]:
    by_partition = {batch.partition: each for batch, each in zip(batches, results, strict=True)}
    produced = []
    for partition, number in places:
        result = by_partition[partition]
        if isinstance(result, PosthouseError):
            produced.append(ProducedRecord(partition=partition, offset=None, error=str(result)))
        else:
            produced.append(ProducedRecord(partition=partition, offset=result.base_offset + number))
    return produced


PRODUCE: Final = Endpoint(
    method="POST",
    path="/v1/topics/{topic}/records",
    summary="Produce records: JSON, plain bytes or CloudEvents; once, with an idempotency key",
    tag="records",
    description="As `application/json` a record, a list of records, or an object with such a list; a record "
    "in each line as `application/x-ndjson`; CloudEvents in binary, structured and batched mode, which are "
    "stored as Kafka's producers of CloudEvents store them. A body of any other type is the value of one "
    "record: parameters name its key and partition, and headers `Posthouse-Header-NAME` its headers. One "
    "batch for each partition. A partition that refuses its records does not stop the others: the result "
    "has an error for each of them. If all are refused, the answer is a problem. With the header "
    "`Idempotency-Key` all records are appended or none, and only once, however often the request is sent; "
    "another request with the same key is answered with 422.",
    writes_to_topic=True,
    handler=_produce,
    parameters=ProduceParameters,
    reader=RECORD_BODIES,
    most_body=_MOST_BODY,
    result=ProducedRecords,
    problems=(404, 413, 422, 507),
)
