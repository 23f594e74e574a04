"""What a share group finds in stored batches."""

from posthouse.broker.progress.progress import Progress
from posthouse.broker.subscriptions.batches import aborted_in, found_in
from posthouse.broker.subscriptions.leases import Acknowledgement, LeaseTerms, Verdict
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.ids import MemberId
from posthouse.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, parse_header, stamp
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import body_of
from posthouse.records.spans import emptied, iter_spans, with_records
from posthouse.storage.producers import AbortedTransaction

TERMS = LeaseTerms(lock_seconds=30, max_deliveries=5, max_leases=100)
ME = MemberId("me")


def batch(first: int, count: int, *, producer: int = -1) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )
    for number in range(count):
        builder.add(b"k", b"%d" % number, timestamp=1)
    made = builder.build()
    stamp(made, first, 0)
    return made


def compacted(first: int, count: int, kept: set[int]) -> bytes:
    whole = batch(first, count)
    header = parse_header(whole)
    body = body_of(whole, header)
    spans = [span for span in iter_spans(body, header) if span.offset_delta in kept]
    return with_records(header, body, spans)


def partition(floor: int = 0) -> SubscribedPartition:
    return SubscribedPartition(Progress(b"q" * 16, 0, floor))


def offsets(share: SubscribedPartition, data: bytes, position: int = 0) -> list[int]:
    return [offset for _, found in found_in(share, data, position) if found for offset in found.offsets]


def test_all_records_of_whole_batches() -> None:
    share = partition()
    data = bytes(batch(0, 3) + batch(3, 2))
    ends = [end for end, _ in found_in(share, data, 0)]
    assert (ends, offsets(share, data)) == ([3, 5], [0, 1, 2, 3, 4])
    assert share.progress.floor == 0


def test_reading_may_begin_in_the_middle_of_a_batch() -> None:
    assert offsets(partition(), bytes(batch(0, 3) + batch(3, 2)), 2) == [2, 3, 4]
    assert offsets(partition(), bytes(batch(0, 3) + batch(3, 2)), 3) == [3, 4]


def test_gaps_of_compaction_are_settled() -> None:
    share = partition()
    data = compacted(2, 6, {1, 4}) + bytes(batch(10, 1))
    assert offsets(share, data) == [3, 6, 10]
    assert [offset for offset in range(11) if not share.progress.is_settled(offset)] == [3, 6, 10]
    assert share.progress.floor == 3


def test_batches_without_records_are_settled() -> None:
    share = partition()
    marker = bytearray(batch(3, 1))
    marker[21:23] = (TRANSACTIONAL_BIT | CONTROL_BIT).to_bytes(2, "big")
    data = emptied(parse_header(batch(0, 3))) + bytes(marker) + bytes(batch(4, 1))
    assert offsets(share, data) == [4]
    assert share.progress.floor == 4


def test_aborted_records_are_settled() -> None:
    share = partition()
    data = bytes(batch(0, 2, producer=7) + batch(2, 2, producer=8) + batch(4, 1) + batch(5, 1, producer=7))
    aborted = aborted_in([AbortedTransaction(producer_id=7, first_offset=0, last_offset=4)])
    found = [each.offsets for _, each in found_in(share, data, 0, aborted) if each]
    assert found == [[2, 3], [4], [5]]
    assert share.progress.floor == 2


def test_what_is_leased_outlives_compaction() -> None:
    share = partition()
    assert share.acquire(range(4), ME, 0.0, TERMS, 0)
    share.acknowledge(ME, [Acknowledgement(0, 0, [Verdict.ACCEPT])], 1.0, TERMS)
    assert offsets(share, compacted(0, 6, {5})) == [5]
    assert [share.holder(offset) for offset in range(6)] == [None, ME, ME, ME, None, None]
    share.acknowledge(ME, [Acknowledgement(1, 1, [Verdict.ACCEPT])], 1.0, TERMS)
    assert share.expire(31.0, TERMS)
    assert offsets(share, compacted(0, 6, {5}), 2) == [5]
    assert share.progress.floor == 5
