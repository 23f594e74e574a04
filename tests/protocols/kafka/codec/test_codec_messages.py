"""What the types promise beyond the wire."""

import pytest

from posthouse.protocols.kafka.codec.generated import fetch, metadata, produce
from posthouse.protocols.kafka.codec.primitives import (
    ZERO_UUID,
    EncodeError,
    long_uvarint,
    read_uvarint,
    uvarint,
)


def _fetch_response(records: bytes | memoryview | None) -> fetch.FetchResponse:
    partition = fetch.PartitionData(partition_index=1, records=records)
    topic = fetch.FetchableTopicResponse(topic="t", partitions=[partition, partition])
    return fetch.FetchResponse(responses=[topic])


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_large_records_are_chunks_of_their_own(version: int) -> None:
    records = memoryview(bytes(100_000))
    chunks = fetch.encode_fetch_response(version, _fetch_response(records))
    assert [chunk is records for chunk in chunks] == [False, True, False, True, False]


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
@pytest.mark.parametrize("records", [None, b"", b"small"])
def test_small_records_are_joined_with_the_rest(version: int, records: bytes | None) -> None:
    assert len(fetch.encode_fetch_response(version, _fetch_response(records))) == 1


def test_decoded_records_share_the_memory_of_the_frame() -> None:
    data = produce.PartitionProduceData(index=0, records=b"r" * 1000)
    request = produce.ProduceRequest(topic_data=[produce.TopicProduceData(partition_data=[data])])
    frame = bytearray(b"".join(produce.encode_produce_request(request)))
    decoded = produce.decode_produce_request(13, memoryview(frame), 0)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_null_where_the_version_has_none_is_the_callers_fault() -> None:
    response = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(name=None)])
    metadata.encode_metadata_response(12, response)
    with pytest.raises(EncodeError, match=r"MetadataResponse\.topics\.name must not be None"):
        metadata.encode_metadata_response(11, response)


def test_more_elements_than_one_byte_can_count() -> None:
    topics = [metadata.MetadataResponseTopic(name=f"topic-{number}") for number in range(20_000)]
    response = metadata.MetadataResponse(topics=topics)
    encoded = b"".join(metadata.encode_metadata_response(13, response))
    assert metadata.decode_metadata_response(memoryview(encoded), 0) == response


def test_defaults_are_not_shared() -> None:
    first, second = produce.ProduceResponse(), produce.ProduceResponse()
    first.responses.append(produce.TopicProduceResponse())
    assert second.responses == []


def test_equality_and_text() -> None:
    partition = fetch.PartitionData(records=memoryview(bytes(70)))
    assert partition == fetch.PartitionData(records=bytes(70))
    assert partition != fetch.PartitionData(records=bytes(71))
    assert partition != fetch.FetchPartition()
    assert "records=<70 bytes>" in repr(partition)
    assert repr(produce.LeaderIdAndEpoch(leader_id=3)) == "LeaderIdAndEpoch(leader_id=3, leader_epoch=-1)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(partition)


def test_fields_have_kafkas_names_and_plain_values() -> None:
    assert fetch.FetchRequest().max_wait_ms == 0
    assert produce.ProduceRequest().timeout_ms == 0
    assert produce.PartitionProduceResponse().log_append_time_ms == -1
    assert produce.TopicProduceData().topic_id == ZERO_UUID
    assert fetch.PartitionData().current_leader is None


@pytest.mark.parametrize(
    "value", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**31 - 1, 2**32 - 1]
)
def test_varint_round_trip(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(memoryview(encoded + b"\xff"), 0) == (value, len(encoded))
    assert value < 128 or long_uvarint(value) == encoded
