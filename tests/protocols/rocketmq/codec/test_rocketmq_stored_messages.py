import tracemalloc
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.errors import BadStoredMessage
from posthouse.protocols.rocketmq.codec.stored_messages import (
    StoredMessage,
    body_crc,
    decode_stored_messages,
    encode_stored_message,
    encode_stored_messages,
)
from tests.protocols.rocketmq.codec.rocketmq_cases import few, stored_messages

V4 = (
    b"\0\0\0\x69"  # 105 bytes
    b"\xda\xa3\x20\xa7"
    b"\x36\x10\xa6\x86"  # CRC-32 of "hello"
    b"\0\0\0\x03"  # queue
    b"\0\0\0\x05"  # flag
    b"\0\0\0\0\0\0\0\x2a"  # queue offset
    b"\0\0\0\0\0\0\x03\xe8"  # position
    b"\0\0\0\x01"  # compressed
    b"\0\0\x01\x8b\xcf\xe5\x68\x00"  # born at 1,700,000,000,000
    b"\x0a\0\0\x01\0\0\x1f\x90"  # 10.0.0.1:8080
    b"\0\0\x01\x8b\xcf\xe5\x68\x01"
    b"\x7f\0\0\x01\0\0\x2a\x9f"  # 127.0.0.1:10911
    b"\0\0\0\x02"  # reconsume times
    b"\0\0\0\0\0\0\0\x09"  # prepared position
    b"\0\0\0\x05hello"
    b"\x01t"
    b"\0\x08a\x01b\x02c\x01d\x02"
)
MESSAGE = StoredMessage(
    topic="t",
    queue=3,
    queue_offset=42,
    position=1000,
    body=b"hello",
    properties="a\x01b\x02c\x01d\x02",
    born_at=1_700_000_000_000,
    born_host=b"\x0a\0\0\x01\0\0\x1f\x90",
    stored_at=1_700_000_000_001,
    stored_host=b"\x7f\0\0\x01\0\0\x2a\x9f",
    flag=5,
    system_flags=1,
    reconsume_times=2,
    prepared_position=9,
    crc=0x3610A686,
)
LOOPBACK_V6 = bytes(15) + b"\x01"
V6 = (
    b"\0\0\0\xf4"  # 244 bytes
    b"\xda\xa3\x20\xab"
    b"\0\0\0\0"
    b"\0\0\0\0"
    b"\0\0\0\0"
    b"\0\0\0\0\0\0\0\0"
    b"\0\0\0\0\0\0\0\0"
    b"\0\0\0\x30"  # both hosts are IPv6
    b"\0\0\0\0\0\0\0\0" + LOOPBACK_V6 + b"\0\0\0\x50"
    b"\0\0\0\0\0\0\0\0" + LOOPBACK_V6 + b"\0\0\0\x51"
    b"\0\0\0\0"
    b"\0\0\0\0\0\0\0\0"
    b"\0\0\0\0"
    b"\0\x80" + b"t" * 128 + b"\0\0"
)


def test_ipv4() -> None:
    assert decode_stored_messages(V4) == [MESSAGE]
    assert encode_stored_message(MESSAGE) == V4
    assert encode_stored_message(replace(MESSAGE, crc=None)) == V4


def test_ipv6_and_a_long_topic() -> None:
    (message,) = decode_stored_messages(V6)
    assert message.topic == "t" * 128
    assert message.born_host == LOOPBACK_V6 + b"\0\0\0\x50"
    assert message.stored_host == LOOPBACK_V6 + b"\0\0\0\x51"
    assert message.system_flags == 48
    assert encode_stored_message(replace(message, system_flags=0)) == V6


def test_one_host_of_each_kind() -> None:
    for born, stored, bits in ((8, 20, 32), (20, 8, 16)):
        message = replace(MESSAGE, born_host=bytes(born), stored_host=bytes(stored), system_flags=49)
        (again,) = decode_stored_messages(encode_stored_message(message))
        assert (len(again.born_host), len(again.stored_host), again.system_flags) == (born, stored, bits | 1)


def test_the_magic_follows_from_the_length_of_the_topic() -> None:
    magics = [encode_stored_message(replace(MESSAGE, topic="é" * size))[4:8].hex() for size in (63, 64)]
    assert magics == ["daa320a7", "daa320ab"]


def test_message_id() -> None:
    assert MESSAGE.message_id == "7F00000100002A9F00000000000003E8"


def test_crc_has_31_bits() -> None:
    body = next(each for each in map(bytes, range(1, 50)) if crc32(each) >> 31)
    assert body_crc(body) == crc32(body) - (1 << 31)


def test_several() -> None:
    assert decode_stored_messages(memoryview(V4 + V6 + V4))[::2] == [MESSAGE, MESSAGE]
    assert encode_stored_messages([MESSAGE, MESSAGE]) == V4 + V4
    assert decode_stored_messages(b"") == []


@pytest.mark.parametrize(
    "message",
    [
        replace(MESSAGE, topic="t" * 0x8000),
        replace(MESSAGE, properties="p" * 0x8000),
        replace(MESSAGE, born_host=b"1234"),
        replace(MESSAGE, queue=1 << 31),
        replace(MESSAGE, position=1 << 63),
    ],
)
def test_what_does_not_fit(message: StoredMessage) -> None:
    with pytest.raises(BadStoredMessage):
        encode_stored_message(message)


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        V4[:-1],
        V4 + b"\0",
        V4.replace(b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xa8"),
        b"\0\0\0\x6b" + V4[4:],
        b"\xff\xff\xff\xff" + V4[4:],
        V4.replace(b"\0\0\0\x05hello", b"\x7f\xff\xff\xffhello"),
        V4.replace(b"\0\0\0\x05hello", b"\xff\xff\xff\xffhello"),
        V4.replace(b"\x01t", b"\xfft"),
        V4.replace(b"\0\x08a", b"\xff\xffa"),
        (97 + 0x8000).to_bytes(4) + V4[4:-10] + b"\x80\0" + bytes(0x8000),
    ],
)
def test_refusals(data: bytes) -> None:
    with pytest.raises(BadStoredMessage):
        decode_stored_messages(data)


def test_every_cut_is_refused() -> None:
    for data in (V4, V6):
        for size in range(1, len(data)):
            with pytest.raises(BadStoredMessage):
                decode_stored_messages(data[:size])


def test_lengths_are_only_claims() -> None:
    claim = V4.replace(b"\0\0\0\x05hello", b"\x40\0\0\0hello")
    tracemalloc.start()
    try:
        with pytest.raises(BadStoredMessage):
            decode_stored_messages(claim)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


@few(200)
@given(st.lists(stored_messages, max_size=3))
def test_round_trip(messages: list[StoredMessage]) -> None:
    decoded = decode_stored_messages(encode_stored_messages(messages))
    assert [replace(each, crc=None, system_flags=each.system_flags & ~48) for each in decoded] == [
        replace(each, system_flags=each.system_flags & ~48) for each in messages
    ]


@few(300)
@given(st.binary(max_size=200), st.integers(0, 105), st.binary(max_size=4))
def test_noise(noise: bytes, at: int, patch: bytes) -> None:
    for data in (noise, V4[:at] + patch + V4[at + len(patch) :]):
        try:
            messages = decode_stored_messages(data)
        except BadStoredMessage:
            continue
        assert len(messages) == bool(data)
