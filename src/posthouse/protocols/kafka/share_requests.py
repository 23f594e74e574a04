"""Common parts of ShareFetch and ShareAcknowledge: the member, and its acknowledgements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from posthouse.broker.access.operations import Operation
from posthouse.broker.subscriptions.leases import Acknowledgement, Verdict
from posthouse.model.errors import PosthouseError, UnknownTopic
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic

_VERDICTS: Mapping[int, Verdict] = {
    0: Verdict.GONE,
    1: Verdict.ACCEPT,
    2: Verdict.RELEASE,
    3: Verdict.REJECT,
    4: Verdict.RENEW,
}


class AcknowledgedBatch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class AcknowledgedPartition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[AcknowledgedBatch]: ...


class AcknowledgedTopic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[AcknowledgedPartition]: ...


Result = tuple[ErrorCode, str | None]
DONE: Result = (ErrorCode.NONE, None)


def names(context: Context, group_id: str | None, member_id: str | None) -> tuple[GroupId, MemberId]:
    require_on_group(context, Operation.READ, group_id or "")
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group must have a name")
    if not member_id:
        raise Refused(ErrorCode.INVALID_REQUEST, "the member id must not be empty")
    return GroupId(group_id), MemberId(member_id)


def partitions(
    topics: Iterable[AcknowledgedTopic],
) -> Iterator[tuple[PartitionId, Sequence[AcknowledgedBatch]]]:
    for topic in topics:
        for each in topic.partitions:
            yield PartitionId(TopicId(topic.topic_id), each.partition_index), each.acknowledgement_batches


async def acknowledge(
    context: Context,
    group: GroupId,
    member: MemberId,
    said: Iterable[tuple[PartitionId, Sequence[AcknowledgedBatch]]],
    *,
    may_renew: bool,
) -> dict[PartitionId, Result]:
    """The result of each partition's acknowledgements, if there are any."""
    results: dict[PartitionId, Result] = {}
    valid: dict[PartitionId, list[Acknowledgement]] = {}
    for partition, batches in said:
        if not batches:
            continue
        results[partition] = DONE
        try:
            check_readable(context, partition)
            valid[partition] = _decoded(batches, may_renew=may_renew)
        except (PosthouseError, Refused) as error:
            results[partition] = failure(context, partition, error)
    for partition, wrong in (await context.broker.subscriptions.acknowledge(group, member, valid)).items():
        if wrong is not None:
            results[partition] = failure(context, partition, wrong)
    return results


def check_readable(context: Context, partition: PartitionId) -> None:
    """Raises UnknownTopic or Refused."""
    require_on_topic(context, Operation.READ, context.broker.topic_by_id(partition.topic).name)


def failure(context: Context, partition: PartitionId, error: PosthouseError | Refused) -> Result:
    """A client that uses an unknown topic id must get the error code for topic ids."""
    try:
        context.broker.topic_by_id(partition.topic)
    except UnknownTopic as unknown:
        return code_of(unknown, by_id=True), str(unknown)
    return code_of(error), str(error)


def _decoded(batches: Sequence[AcknowledgedBatch], *, may_renew: bool) -> list[Acknowledgement]:
    decoded = []
    free_from = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not free_from <= first <= last:
            raise _invalid(f"records {first} to {last} are out of order")
        if not types:
            raise _invalid(f"no verdict for the records {first} to {last}")
        if len(types) > 1 and len(types) != last - first + 1:
            raise _invalid(f"{len(types)} verdicts for the records {first} to {last}")
        verdicts = []
        for each in types:
            verdict = _VERDICTS.get(each)
            if verdict is None or (verdict is Verdict.RENEW and not may_renew):
                raise _invalid(f"a record cannot be acknowledged with {each}")
            verdicts.append(verdict)
        decoded.append(Acknowledgement(first, last, verdicts))
        free_from = last + 1
    return decoded


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, why)
