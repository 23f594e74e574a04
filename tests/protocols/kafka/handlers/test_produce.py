"""Produce: each partition is taken or refused by itself."""

import datetime
import time

import pytest
from crc32c import crc32c

from posthouse.model.topic_config import CompressionType
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.records.batch import ATTRIBUTES_AT, CRC_AT, MAGIC_AT, iter_headers, verify_crc
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.recompression import STORED_CODEC
from posthouse.records.record import iter_records
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch, kio_module, produce_request


async def test_offsets_follow_each_other(wire: Wire) -> None:
    topic = await wire.create_topic()
    first = await wire.produce(topic, batch(b"a", b"b", b"c"))
    second = await wire.produce(topic, batch(b"d"))
    assert (first.error_code, first.base_offset, first.log_start_offset) == (0, 0, 0)
    assert (second.error_code, second.base_offset, second.log_append_time_ms) == (0, 3, -1)
    stored = (await wire.fetch(topic)).records
    assert stored is not None
    records = [
        (record.offset, record.value)
        for pos, header in iter_headers(stored)
        for record in iter_records(memoryview(stored)[pos : pos + header.length])
    ]
    assert records == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
        (3, b"d"),
    ]


async def test_partitions_fail_one_by_one(wire: Wire) -> None:
    topic = await wire.create_topic(partitions=2)
    request = ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(
                topic_id=topic,
                partition_data=[
                    PartitionProduceData(index=0, records=batch(b"a")),
                    PartitionProduceData(index=5, records=batch(b"b")),
                    PartitionProduceData(index=1, records=None),
                ],
            ),
            TopicProduceData(
                topic_id=b"u" * 16, partition_data=[PartitionProduceData(index=0, records=batch(b"c"))]
            ),
        ],
    )
    known, unknown = (await wire.ask(request, ProduceResponse)).responses
    assert [(each.index, each.error_code, each.base_offset) for each in known.partition_responses] == [
        (0, ErrorCode.NONE, 0),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (1, ErrorCode.INVALID_RECORD, -1),
    ]
    assert "no partition 5" in (known.partition_responses[1].error_message or "")
    assert unknown.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("acks", [2, -2, 3, 100])
async def test_acks_without_a_meaning(acks: int, wire: Wire) -> None:
    topic = await wire.create_topic()
    answer = await wire.produce(topic, batch(b"a"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert (await wire.fetch(topic)).high_watermark == 0


async def test_without_acks_there_is_no_response(wire: Wire) -> None:
    topic = await wire.create_topic()
    for _ in range(10):
        wire.send(produce_request(topic, batch(b"a"), acks=0))
    assert (await wire.produce(topic, batch(b"b"))).base_offset == 10


async def test_without_acks_an_error_closes_the_connection(broker: AsyncBroker, wire: Wire) -> None:
    """The client asked for no response, so this is the only way that it can learn of it."""
    async with Wire(broker.kafka) as silent:
        silent.send(produce_request(b"u" * 16, batch(b"a"), acks=0))
        assert await silent.reader.read() == b""
    await wire.create_topic()


def _with_byte(position: int, value: int, fix_crc: bool = True) -> bytearray:
    damaged = batch(b"some value")
    damaged[position] = value
    if fix_crc:
        damaged[CRC_AT : CRC_AT + 4] = crc32c(damaged[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return damaged


def _transactional() -> bytearray:
    builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    builder.add(None, b"x")
    return builder.build()


REFUSED = {
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "cut short": (batch(b"x")[:-1], ErrorCode.CORRUPT_MESSAGE),
    "a few bytes": (b"abc", ErrorCode.CORRUPT_MESSAGE),
    "flipped bit": (_with_byte(70, 0xFF, fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "old format": (_with_byte(MAGIC_AT, 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "two batches": (batch(b"x") + batch(b"y"), ErrorCode.INVALID_RECORD),
    "unknown codec": (_with_byte(ATTRIBUTES_AT + 1, 6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "control batch": (_with_byte(ATTRIBUTES_AT + 1, 0x20), ErrorCode.INVALID_RECORD),
    "transactional": (_transactional(), ErrorCode.INVALID_TXN_STATE),
    "too large": (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    "from the future": (batch(b"x", timestamp=2**50), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize(("records", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused(records: bytes, code: ErrorCode, wire: Wire) -> None:
    topic = await wire.create_topic()
    answer = await wire.produce(topic, records)
    assert answer.error_code == code
    assert answer.base_offset == -1
    assert answer.error_message
    assert (await wire.fetch(topic)).high_watermark == 0
    assert (await wire.produce(topic, batch(b"fine"))).base_offset == 0


async def test_a_transaction_needs_a_producer(wire: Wire) -> None:
    topic = await wire.create_topic()
    request = produce_request(topic, _transactional())
    request.transactional_id = "mine"
    answer = await wire.ask(request, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_a_partition_is_named_once(wire: Wire) -> None:
    topic = await wire.create_topic()
    request = produce_request(topic, batch(b"a"))
    request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=batch(b"b")))
    [first, second] = (await wire.ask(request, ProduceResponse)).responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert (await wire.fetch(topic)).high_watermark == 1


@pytest.mark.parametrize(
    ("codec", "code"),
    [(Codec.LZ4, ErrorCode.NONE), (Codec.ZSTD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)],
    ids=["lz4", "zstd"],
)
async def test_old_versions_know_no_zstd(codec: Codec, code: ErrorCode, wire: Wire) -> None:
    await wire.create_topic("t")
    v6 = kio_module("produce.v6.request")
    data = v6.PartitionProduceData(index=0, records=bytes(batch(b"x", codec=codec)))
    request = v6.ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout=datetime.timedelta(seconds=1),
        topic_data=(v6.TopicProduceData(name="t", partition_data=(data,)),),
    )
    answer = await wire.ask_kio(request, kio_module("produce.v6.response").ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == code


async def test_log_append_time(wire: Wire) -> None:
    topic = await wire.create_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = await wire.produce(topic, batch(b"a", timestamp=5))
    assert before <= answer.log_append_time_ms <= int(time.time() * 1000)
    stored = (await wire.fetch(topic)).records
    assert stored is not None
    assert [record.timestamp for record in iter_records(stored)] == [answer.log_append_time_ms]


@pytest.mark.parametrize("setting", STORED_CODEC)
@pytest.mark.parametrize("codec", Codec)
async def test_batches_are_stored_as_the_topic_wants(
    codec: Codec, setting: CompressionType, wire: Wire
) -> None:
    topic = await wire.create_topic(compression_type=setting)
    values = [b"a" * 500, None, b"b"]
    for base in (0, 3):
        answer = await wire.produce(topic, batch(*values, codec=codec))
        assert (answer.error_code, answer.base_offset) == (0, base)
    stored = (await wire.fetch(topic)).records
    assert stored is not None
    headers = list(iter_headers(stored))
    assert [header.codec for _, header in headers] == [STORED_CODEC[setting]] * 2
    assert all(verify_crc(stored, pos, header.length) for pos, header in headers)
    second = memoryview(stored)[headers[1][0] :]
    assert [(record.offset, record.value) for record in iter_records(second)] == [*enumerate(values, 3)]


async def test_by_default_batches_stay_as_they_are(wire: Wire) -> None:
    topic = await wire.create_topic()
    sent = batch(b"a" * 500, codec=Codec.GZIP)
    await wire.produce(topic, sent)
    stored = (await wire.fetch(topic)).records
    assert stored is not None
    assert bytes(stored[ATTRIBUTES_AT:]) == bytes(sent[ATTRIBUTES_AT:])


async def test_what_becomes_too_large_is_refused(wire: Wire) -> None:
    topic = await wire.create_topic(compression_type="uncompressed", max_message_bytes="1000")
    small = batch(b"a" * 2000, codec=Codec.GZIP)
    assert len(small) < 1000
    assert (await wire.produce(topic, small)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await wire.produce(topic, batch(b"a" * 900, codec=Codec.GZIP))).error_code == 0


async def test_recompressed_batches_get_the_time_of_the_log_too(wire: Wire) -> None:
    topic = await wire.create_topic(compression_type="zstd", message_timestamp_type="LogAppendTime")
    answer = await wire.produce(topic, batch(b"a" * 500))
    stored = (await wire.fetch(topic)).records
    assert stored is not None
    [(pos, header)] = iter_headers(stored)
    assert (header.codec, header.max_timestamp) == (Codec.ZSTD, answer.log_append_time_ms)
    assert verify_crc(stored, pos, header.length)


async def test_max_message_bytes_is_enforced(wire: Wire) -> None:
    fits = batch(b"x" * 1000)
    topic = await wire.create_topic(max_message_bytes=str(len(fits)))
    assert (await wire.produce(topic, fits)).error_code == 0
    assert (await wire.produce(topic, batch(b"x" * 1001))).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_records_without_a_key_are_named(wire: Wire) -> None:
    topic = await wire.create_topic(cleanup_policy="compact")
    builder = BatchBuilder()
    for key in (b"a", None, b"b", None):
        builder.add(key, b"v", timestamp=1)
    answer = await wire.produce(topic, builder.build())
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1, 3]


async def test_a_deleted_topic_is_unknown(broker: AsyncBroker, wire: Wire) -> None:
    topic = await wire.create_topic()
    await broker.app.broker.delete_topics([broker.app.broker.topic("t")])
    assert (await wire.produce(topic, batch(b"x"))).error_code == ErrorCode.UNKNOWN_TOPIC_ID
