"""Which responses count as errors."""

from posthouse.protocols.kafka.codec.generated.heartbeat import HeartbeatResponse
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from posthouse.protocols.kafka.response_errors import has_error


def committed(codes: list[int]) -> OffsetCommitResponse:
    partitions = [OffsetCommitResponsePartition(error_code=code) for code in codes]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(partitions=partitions)])


def test_the_error_code_of_a_response_counts() -> None:
    assert not has_error(HeartbeatResponse())
    assert has_error(HeartbeatResponse(error_code=27))


def test_the_error_code_of_a_part_counts() -> None:
    assert not has_error(committed([0, 0]))
    assert has_error(committed([0, 3]))


def test_a_long_response_is_not_searched_to_its_end() -> None:
    assert has_error(committed([0] * 50 + [3]))
    assert not has_error(committed([0] * 10_000 + [3]))
