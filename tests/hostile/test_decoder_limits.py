"""What decoders refuse although the bytes are there: more than anybody needs, and too much for everybody."""

import tracemalloc

import pytest

from posthouse.broker.progress.progress import Progress
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.errors import CorruptBatch, InvalidRecord, RecordTooLarge
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.errors import FrameError
from posthouse.protocols.amqp.codec.framing import FRAME, PROTOCOL
from posthouse.protocols.kafka.codec.primitives import MAX_ELEMENTS, DecodeError, uvarint
from posthouse.protocols.kafka.codec.registry import APIS
from posthouse.protocols.kafka.consumer_protocol import ConsumerProtocol
from posthouse.records.batch import validate_produced
from posthouse.records.compression import MAX_OUTPUT, Codec, compress, decompress, output_limit
from posthouse.records.record import iter_records
from tests.hostile import bombs

MIB = 1024 * 1024
DELETE_RECORDS, FIND_COORDINATOR, METADATA = APIS[21], APIS[10], APIS[3]


def test_as_many_elements_as_a_request_may_have() -> None:
    topic = b"\x01\x01\x00"
    body = uvarint(MAX_ELEMENTS + 1) + topic * MAX_ELEMENTS + bytes(5)
    assert DELETE_RECORDS.decode_request(2, memoryview(body), 0)
    body = uvarint(MAX_ELEMENTS + 2) + topic * (MAX_ELEMENTS + 1) + bytes(5)
    with pytest.raises(DecodeError, match=r"262145 elements where 262144 of 262144 are left"):
        DELETE_RECORDS.decode_request(2, memoryview(body), 0)


def test_elements_of_all_arrays_count_together() -> None:
    partition = bytes(13)
    topic = b"\x01" + uvarint(1001) + partition * 1000 + b"\0"
    body = uvarint(301) + topic * 300 + bytes(5)
    with pytest.raises(DecodeError, match="are left"):
        DELETE_RECORDS.decode_request(2, memoryview(body), 0)


def test_no_string_is_longer_than_kafkas() -> None:
    for size, is_allowed in ((32_767, True), (32_768, False)):
        body = memoryview(uvarint(size + 1) + b"x" * size + b"\0\0")
        if is_allowed:
            assert FIND_COORDINATOR.decode_request(3, body, 0)
        else:
            with pytest.raises(DecodeError, match="where a string may have 32767"):
                FIND_COORDINATOR.decode_request(3, body, 0)


@pytest.mark.parametrize(("version", "count"), [(12, uvarint(2**31 - 1)), (1, b"\x7f\xff\xff\xff")])
def test_an_array_of_16_gb_costs_nothing(version: int, count: bytes) -> None:
    decode = METADATA.decode_request
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(version, memoryview(count + bytes(1000)), 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_what_consumers_say_of_themselves_is_counted() -> None:
    protocol = ConsumerProtocol()
    many = b"\0\0" + (2**31 - 1).to_bytes(4) + b"\0\0" * 1000
    assert protocol.subscription("consumer", many) is None
    empty_names = b"\0\0" + (MAX_ELEMENTS + 1).to_bytes(4) + b"\0\0" * (MAX_ELEMENTS + 1) + b"\xff" * 4
    assert protocol.subscription("consumer", empty_names) is None


def test_messages_on_too_many_channels() -> None:
    decoder = Decoder(frame_max=4096)
    decoder.feed(PROTOCOL)
    publish = (0x003C0028).to_bytes(4) + b"\0\0\0\0\0"
    stream = b"".join(FRAME.pack(1, channel, 9) + publish + b"\xce" for channel in range(1, 65_536))
    with pytest.raises(FrameError, match="too many channels"):
        decoder.feed(stream)


@pytest.mark.parametrize(
    "codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name
)
def test_a_bomb_is_let_go_in_time(codec: Codec) -> None:
    bomb = bombs.bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge):
            list(iter_records(bomb))
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


def test_what_a_batch_may_become() -> None:
    assert output_limit(10) == 16 * MIB
    assert output_limit(MIB) == 20 * MIB
    assert output_limit(100 * MIB) == MAX_OUTPUT
    repetitive = compress(Codec.ZSTD, bytes(16 * MIB))
    assert len(repetitive) < 4096
    assert len(decompress(Codec.ZSTD, repetitive, max_output=output_limit(len(repetitive)))) == 16 * MIB


def test_a_snappy_block_that_promises_more_than_it_can_hold() -> None:
    promise = b"\xff\xff\x3f" + bytes(100)
    with pytest.raises(CorruptBatch, match="cannot hold"):
        decompress(Codec.SNAPPY, promise, max_output=16 * MIB)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name)
def test_a_batch_must_be_able_to_hold_its_records(codec: Codec) -> None:
    with pytest.raises(InvalidRecord, match="cannot be in"):
        validate_produced(bombs.lie(2**31 - 1, codec), max_bytes=MIB)


def test_a_share_group_looks_at_as_many_records_as_it_may_give() -> None:
    partition = SubscribedPartition(Progress(bytes(16), 0))
    assert partition.ready(range(2**31), 100) == list(range(100))
