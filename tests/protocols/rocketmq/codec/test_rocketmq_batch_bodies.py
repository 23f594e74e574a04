import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.batch_bodies import BatchMessage, decode_batch, encode_batch
from posthouse.protocols.rocketmq.codec.errors import BadBatch
from tests.protocols.rocketmq.codec.rocketmq_cases import few, text

FIRST = b"\0\0\0\x1f" + bytes(8) + b"\0\0\0\x05" + b"\0\0\0\x05hello" + b"\0\x04a\x01b\x02"
SECOND = b"\0\0\0\x16" + bytes(8) + b"\xff\xff\xff\xff" + b"\0\0\0\0" + b"\0\0"
MESSAGES = [
    BatchMessage(flag=5, body=b"hello", properties="a\x01b\x02"),
    BatchMessage(flag=-1, body=b"", properties=""),
]


def test_reading_and_writing() -> None:
    assert decode_batch(FIRST + SECOND) == MESSAGES
    assert decode_batch(memoryview(FIRST + SECOND)) == MESSAGES
    assert encode_batch(MESSAGES) == FIRST + SECOND
    assert decode_batch(b"") == []


def test_magic_and_crc_are_not_read() -> None:
    assert decode_batch(FIRST[:4] + b"\xff" * 8 + FIRST[12:]) == MESSAGES[:1]


def test_text_that_is_not_utf8() -> None:
    (message,) = decode_batch(FIRST[:-4] + b"a\x01\xff\x02")
    assert message.properties == "a\x01\ufffd\x02"


@pytest.mark.parametrize(
    "data",
    [
        SECOND[:-1],
        SECOND + b"\0",
        b"\0\0\0\x15" + SECOND[4:],
        b"\0\0\0\0" + SECOND[4:],
        FIRST.replace(b"\0\0\0\x05hello", b"\x40\0\0\0hello"),
        FIRST.replace(b"\0\0\0\x05hello", b"\xff\xff\xff\xffhello"),
        FIRST.replace(b"\0\x04a", b"\xff\xffa"),
        b"\0\0\x80\x16" + SECOND[4:-2] + b"\x80\0" + bytes(0x8000),
    ],
)
def test_refusals(data: bytes) -> None:
    with pytest.raises(BadBatch):
        decode_batch(FIRST + data)


def test_the_count_is_limited() -> None:
    assert len(decode_batch(SECOND * 5, max_messages=5)) == 5
    with pytest.raises(BadBatch, match="more than 4"):
        decode_batch(SECOND * 5, max_messages=4)


def test_properties_that_do_not_fit() -> None:
    longest = BatchMessage(flag=0, body=b"", properties="p" * 0x7FFF)
    assert decode_batch(encode_batch([longest])) == [longest]
    with pytest.raises(BadBatch, match="32767"):
        encode_batch([BatchMessage(flag=0, body=b"", properties="p" * 0x8000)])


@few(100)
@given(
    st.lists(
        st.builds(
            BatchMessage,
            flag=st.integers(-(1 << 31), (1 << 31) - 1),
            body=st.binary(max_size=30),
            properties=text,
        ),
        max_size=4,
    )
)
def test_round_trip(messages: list[BatchMessage]) -> None:
    assert decode_batch(encode_batch(messages)) == messages


@few(200)
@given(st.binary(max_size=80), st.integers(0, 31), st.binary(max_size=4))
def test_noise(noise: bytes, at: int, patch: bytes) -> None:
    for data in (noise, FIRST[:at] + patch + FIRST[at:], FIRST[:at] + patch + FIRST[at + len(patch) :]):
        try:
            messages = decode_batch(data)
        except BadBatch:
            continue
        assert decode_batch(encode_batch(messages)) == messages
