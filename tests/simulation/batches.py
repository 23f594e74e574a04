"""Record batches of numbers: made for producers, and read by consumers."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.protocols.kafka.codec.generated.fetch import PartitionData
from posthouse.records.batch import iter_headers
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import iter_records
from posthouse.records.visibility import AbortedProducer, visible_batches


@dataclass(slots=True)
class Producer:
    id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of one partition. `next` is where to go on."""

    records: list[tuple[int, int]]
    next: int
    start: int
    stable: int
    end: int


def make_batch(
    values: Sequence[int],
    producer: Producer | None = None,
    sequence: int = -1,
    *,
    transactional: bool = False,
) -> bytearray:
    """A record's value is its number, padded so that segments and journals fill."""
    who = producer or Producer()
    builder = BatchBuilder(
        producer_id=who.id, producer_epoch=who.epoch, base_sequence=sequence, transactional=transactional
    )
    for value in values:
        builder.add(None, b"%d " % value + bytes(value * 7 % 90), timestamp=1_700_000_000_000)
    return builder.build()


def decoded(data: PartitionData, position: int, committed_only: bool) -> Fetched:
    view = memoryview(data.records or b"")
    batches = list(iter_headers(view))
    following = max(position, batches[-1][1].next_offset) if batches else position
    if committed_only and data.aborted_transactions:
        aborted = [AbortedProducer(each.producer_id, each.first_offset) for each in data.aborted_transactions]
        batches = list(visible_batches(view, aborted))
    records: list[tuple[int, int]] = []
    for at, header in batches:
        if header.is_control or header.next_offset <= position:
            continue
        for record in iter_records(view[at : at + header.length]):
            if record.offset >= position:
                assert record.value is not None
                records.append((record.offset, int(record.value.split(b" ")[0])))
    return Fetched(records, following, data.log_start_offset, data.last_stable_offset, data.high_watermark)
