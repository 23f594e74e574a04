"""Reading records at certain offsets of one partition, such as a search has found: batch by batch."""

from collections.abc import Iterator, Sequence

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import OffsetGone, refused
from posthouse.client.positions import READ_COMMITTED
from posthouse.client.reading import Fetched, Message, damaged
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.records.batch import iter_headers
from posthouse.records.visibility import AbortedProducer

_ONE_BATCH = 1
_WAIT = 0.5


def records_at(
    cluster: Cluster, info: TopicInfo, partition: int, offsets: Sequence[int]
) -> Iterator[Message]:
    """The committed ones at these rising offsets. Those that retention has removed meanwhile are left out."""
    wanted = set(offsets)
    done = 0
    for offset in offsets:
        if offset < done:
            continue
        try:
            answer = _fetch(cluster, info, partition, offset)
        except OffsetGone:
            continue
        for _, header in iter_headers(answer.records or b""):
            if header.is_damage:
                raise damaged(info.name, partition, offset, header.next_offset)
            done = max(done, header.next_offset)
        aborted = [
            AbortedProducer(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        ]
        fetched = Fetched(
            topic=info.name,
            partition=partition,
            data=answer.records or b"",
            first=offset,
            end=offsets[-1] + 1,
            aborted=aborted,
        )
        yield from (message for message in fetched.messages() if message.offset in wanted)


def _fetch(cluster: Cluster, info: TopicInfo, partition: int, offset: int) -> PartitionData:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_ONE_BATCH)
    request = FetchRequest(
        max_wait_ms=int(_WAIT * 1000),
        min_bytes=1,
        max_bytes=_ONE_BATCH,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic_id=info.id, partitions=[wanted])],
    )
    response = cluster.broker(info.leaders[partition]).ask(request, FetchResponse, wait=_WAIT)
    if response.error_code:
        raise refused(response.error_code, None, info.name)
    found = response.responses[0].partitions[0]
    if found.error_code:
        raise refused(found.error_code, None, info.name, needs="read")
    return found
