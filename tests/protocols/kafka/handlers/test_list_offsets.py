"""ListOffsets: both ends, by time, and the record with the highest timestamp."""

import pytest

from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.wire import Wire, batch, kio_module

BASE = 1_700_000_000_000


async def find(
    wire: Wire, timestamp: int, name: str = "t", partition: int = 0, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
    return (await wire.ask(request, ListOffsetsResponse)).topics[0].partitions[0]


@pytest.fixture
async def filled(wire: Wire) -> Wire:
    """Timestamps BASE, +1, +2, then +100, +101, then +50."""
    topic = await wire.create_topic()
    await wire.produce(topic, batch(b"a", b"b", b"c", timestamp=BASE))
    await wire.produce(topic, batch(b"d", b"e", timestamp=BASE + 100))
    await wire.produce(topic, batch(b"f", timestamp=BASE + 50))
    return wire


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (-1, 6, -1),
        (-2, 0, -1),
        (-3, 4, BASE + 101),
        (-4, 0, -1),
        (-5, -1, -1),
        (-6, -1, -1),
        (0, 0, BASE),
        (BASE, 0, BASE),
        (BASE + 2, 2, BASE + 2),
        (BASE + 3, 3, BASE + 100),
        (BASE + 101, 4, BASE + 101),
        (BASE + 102, -1, -1),
    ],
)
async def test_places(timestamp: int, offset: int, found: int, filled: Wire) -> None:
    answer = await find(filled, timestamp)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found)
    assert answer.leader_epoch == (-1 if offset == -1 else 0)


async def test_an_empty_log(wire: Wire) -> None:
    await wire.create_topic()
    assert [(await find(wire, each)).offset for each in (-1, -2, -3, 0)] == [0, 0, -1, -1]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "unknown"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"timestamp": -7}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_errors(changes: dict[str, object], code: ErrorCode, filled: Wire) -> None:
    answer = await find(filled, **{"timestamp": -1, **changes})  # type: ignore[arg-type]
    assert (answer.error_code, answer.offset) == (code, -1)


async def test_old_versions_know_fewer_places(filled: Wire) -> None:
    v1 = kio_module("list_offsets.v1.request")
    response = kio_module("list_offsets.v1.response").ListOffsetsResponse

    async def code(timestamp: int) -> object:
        partition = v1.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = v1.ListOffsetsTopic(name="t", partitions=(partition,))
        answer = await filled.ask_kio(v1.ListOffsetsRequest(replica_id=-1, topics=(topic,)), response)
        return answer.topics[0].partitions[0].error_code

    assert await code(-1) == 0
    assert await code(-3) == ErrorCode.UNSUPPORTED_VERSION
