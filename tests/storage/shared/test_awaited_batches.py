"""Which failed batches have to be repeated before others of their producer."""

from typing import cast

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.ids import FIRST_BOUND, FIRST_KEYED, PartitionId, new_topic_id
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.operations import Append
from posthouse.storage.shared.commits.awaited_batches import AwaitedBatches
from posthouse.storage.shared.logs.shared_log import SharedLog

PARTITION = PartitionId(new_topic_id(), 0)


class _EmptyLog:
    def producer(self, producer_id: int) -> None:
        """It knows of none."""


def append(producer: int, sequence: int) -> Append:
    builder = BatchBuilder(producer_id=producer, producer_epoch=1, base_sequence=sequence)
    builder.add(None, b"x", (), 0)
    data = builder.build()
    return Append(PARTITION, memoryview(data), parse_header(data))


@pytest.mark.parametrize(
    ("producer", "is_awaited"),
    [(7, True), (FIRST_BOUND + 7, True), (FIRST_KEYED, False), (FIRST_BOUND - 1, False)],
)
def test_nothing_follows_the_request_of_an_idempotency_key(producer: int, is_awaited: bool) -> None:
    awaited = AwaitedBatches({PARTITION: cast("SharedLog", _EmptyLog())}, ManualClock())
    awaited.failed([append(producer, 2)])
    assert bool(awaited.before([append(producer, 4)])) == is_awaited
