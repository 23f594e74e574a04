import json
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.errors import BadFrame
from posthouse.protocols.rocketmq.codec.frames import FrameDecoder, encode_command
from tests.protocols.rocketmq.codec.rocketmq_cases import (
    BINARY_SEND,
    JSON_SEND,
    commands,
    few,
    frame,
    json_frame,
    outcome,
    pieces,
)

PROPERTIES = "TAGS\x01A\x02"
FROM_JSON = Command(
    310, 7, 0, "JAVA", 409, None, {"b": "orders", "e": "3", "i": PROPERTIES}, b"hello", Serialization.JSON
)
FROM_BINARY = Command(
    310, 7, 0, "GO", 317, "note", {"b": "orders", "i": PROPERTIES}, b"hello", Serialization.BINARY
)


def decoded(data: bytes) -> Command:
    (command,) = FrameDecoder().feed(data)
    return command


def test_json() -> None:
    assert decoded(JSON_SEND) == FROM_JSON


def test_binary() -> None:
    assert decoded(BINARY_SEND) == FROM_BINARY
    assert encode_command(FROM_BINARY) == BINARY_SEND


def test_json_is_written_compact() -> None:
    command = Command(0, 7, 1, "JAVA", 409, None, {"queueId": "3", "msgId": "a b"}, b"body")
    header = (
        b'{"code":0,"opaque":7,"flag":1,"language":"JAVA","version":409,'
        b'"extFields":{"queueId":"3","msgId":"a b"}}'
    )
    assert encode_command(command) == b"\0\0\0\x70\0\0\0\x68" + header + b"body"


def test_an_empty_binary_command() -> None:
    data = b"\0\0\0\x19\x01\0\0\x15" + b"\0\x22\x00\x01\x99\0\0\0\x09\0\0\0\x02" + bytes(8)
    command = decoded(data)
    assert command == Command(34, 9, 2, "JAVA", 409, None, {}, b"", Serialization.BINARY)
    assert command.is_oneway
    assert not command.is_response
    assert encode_command(command) == data


@pytest.mark.parametrize("request_", [FROM_JSON, FROM_BINARY])
def test_an_answer_has_the_serialization_of_its_request(request_: Command) -> None:
    answer = request_.answer(17, remark="no such topic", fields={"a": "b"}, body=b"x")
    assert answer.is_response
    assert not answer.is_oneway
    again = decoded(encode_command(answer))
    assert again == answer
    assert (again.code, again.opaque, again.remark, again.fields, again.body, again.serialization) == (
        17,
        7,
        "no such topic",
        {"a": "b"},
        b"x",
        request_.serialization,
    )


def test_a_body_may_be_a_memoryview() -> None:
    assert decoded(encode_command(Command(0, 1, body=memoryview(b"abc")))).body == b"abc"


@given(commands)
@few(200)
def test_commands_survive(command: Command) -> None:
    assert decoded(encode_command(command)) == command


def test_codes_beyond_16_bits_are_cut_in_binary_headers_only() -> None:
    pop = Command(200050, 1)
    assert decoded(encode_command(pop)).code == 200050
    assert decoded(encode_command(replace(pop, serialization=Serialization.BINARY))).code == 3442


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ('"NODE_JS"', "NODE_JS"),
        ('"COBOL"', "COBOL"),
        ("9", "GO"),
        ("200", "200"),
        ('"3"', "3"),
        ('"077"', "077"),
        ('"٣٣"', "٣٣"),
        ("-1", "-1"),
    ],
)
def test_languages_in_json(sent: str, name: str) -> None:
    command = decoded(frame(f'{{"code":1,"language":{sent}}}'.encode()))
    assert command.language == name
    assert decoded(encode_command(command)).language == name


@pytest.mark.parametrize(
    ("language", "byte"), [("JAVA", 0), ("NODE_JS", 13), ("127", 127), ("256", 7), ("COBOL", 7)]
)
def test_languages_in_binary(language: str, byte: int) -> None:
    command = Command(1, 1, language=language, serialization=Serialization.BINARY)
    assert encode_command(command)[10] == byte


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b'{"code":"34"}', Command(34, 0, version=0)),
        (b'{"code":34.0,"opaque":null,"remark":null,"extFields":null}', Command(34, 0, version=0)),
        (
            b'{"code":34,"opaque":5,"extFields":{"a":1,"b":true,"c":null,"d":false}}',
            Command(34, 5, version=0, fields={"a": "1", "b": "true", "d": "false"}),
        ),
        (
            b'{"code":34,"extFields":{"i":"a\x01b\x02"}}',
            Command(34, 0, version=0, fields={"i": "a\x01b\x02"}),
        ),
        (
            b'{"code":34,"extFields":{"i":"\xb5\xb5"}}',
            Command(34, 0, version=0, fields={"i": "\ufffd\ufffd"}),
        ),
        (b'{"code":34,"extFields":{"i":"\\ud83d"}}', Command(34, 0, version=0, fields={"i": "\ufffd"})),
        (b' { "code" : 34 , "extFields" : { 5 : "x" } } ', Command(34, 0, version=0, fields={"5": "x"})),
    ],
)
def test_lenient_headers(header: bytes, expected: Command) -> None:
    command = decoded(frame(header))
    assert command == expected
    assert decoded(encode_command(command)) == expected


def test_text_that_is_not_utf8_in_a_binary_header() -> None:
    header = b"\0\x22\0" + bytes(10) + b"\0\0\0\x01\xff" + b"\0\0\0\x09" + b"\0\x01\xfe\0\0\0\x02\xfda"
    command = decoded(frame(header, serialization=1))
    assert (command.remark, command.fields) == ("\ufffd", {"\ufffd": "\ufffda"})


def test_a_bad_length_is_told_as_soon_as_it_is_there() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(JSON_SEND + b"\xff") == [FROM_JSON]
    assert decoder.feed(b"\xff\xff") == []
    with pytest.raises(BadFrame):
        decoder.feed(b"\xff")


def test_every_split() -> None:
    data = JSON_SEND + BINARY_SEND + JSON_SEND
    expected = [FROM_JSON, FROM_BINARY, FROM_JSON]
    for at in range(len(data) + 1):
        assert outcome([data[:at], data[at:]]) == (expected, False)
    assert outcome(pieces(data, 1)) == (expected, False)


def test_what_is_held() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(JSON_SEND + BINARY_SEND[:30]) == [FROM_JSON]
    assert decoder.held == 30
    decoder.feed(BINARY_SEND[30:31])
    assert decoder.held == 31
    assert decoder.feed(BINARY_SEND[31:]) == [FROM_BINARY]
    assert decoder.held == 0


def test_a_lost_connection() -> None:
    decoder = FrameDecoder()
    decoder.feed(JSON_SEND[:50])
    decoder.forget()
    assert decoder.held == 0
    assert decoder.feed(JSON_SEND) == []
    assert decoder.held == 0


FIXED = b"\0\x22\0" + bytes(10)
BAD = {
    "a length of 0": b"\0\0\0\0",
    "a length of 3": b"\0\0\0\x03\0\0\0",
    "a negative length": b"\xff\xff\xff\xff",
    "too large a frame": b"\0\0\x10\0",
    "a header beyond the frame": b"\0\0\0\x05\0\0\0\x02{}",
    "too large a header": frame(b" " * 1023 + b"{}"),
    "an unknown serialisation": frame(b"{}", serialization=2),
    "a negative serialisation": frame(b"{}", serialization=255),
    "an empty JSON header": frame(b""),
    "JSON that is none": frame(b"{"),
    "JSON of another type": frame(b"[]"),
    "no code": frame(b"{}"),
    "a code that is text": frame(b'{"code":"x"}'),
    "a code of 33 bits": frame(b'{"code":2147483648}'),
    "an opaque of 33 bits": frame(b'{"code":1,"opaque":-2147483649}'),
    "fields of another type": frame(b'{"code":1,"extFields":[]}'),
    "a field of another type": frame(b'{"code":1,"extFields":{"a":{}}}'),
    "deep JSON": frame(b'{"code":1,"extFields":' + b"[" * 900),
    "deep JSON in what is skipped": frame(b'{"code":1,"x":' + b'{"a":' * 190),
    "bytes behind JSON": frame(b'{"code":1}x'),
    "an empty binary header": frame(b"", serialization=1),
    "a binary header without fields": frame(FIXED + bytes(4), serialization=1),
    "a remark beyond the header": frame(FIXED + b"\0\0\0\x09" + bytes(4), serialization=1),
    "a negative remark": frame(FIXED + b"\xff\xff\xff\xff" + bytes(4), serialization=1),
    "fields beyond the header": frame(FIXED + bytes(4) + b"\0\0\0\x01", serialization=1),
    "fields before its end": frame(FIXED + bytes(4) + b"\0\0\0\0x", serialization=1),
    "a key beyond the fields": frame(FIXED + bytes(4) + b"\0\0\0\x03\0\x02a", serialization=1),
    "half a length of a value": frame(FIXED + bytes(4) + b"\0\0\0\x05\0\x01a\0\0", serialization=1),
    "a value beyond the fields": frame(FIXED + bytes(4) + b"\0\0\0\x08\0\x01a\0\0\0\x02b", serialization=1),
    "a negative value": frame(FIXED + bytes(4) + b"\0\0\0\x08\0\x01a\xff\xff\xff\xffb", serialization=1),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_refusals(data: bytes) -> None:
    """What came before counts, nothing behind does, however it is cut."""
    stream = JSON_SEND + data + JSON_SEND
    assert outcome([stream]) == ([FROM_JSON], True)
    assert outcome(pieces(stream, 1)) == ([FROM_JSON], True)
    assert outcome(pieces(stream, 7)) == ([FROM_JSON], True)


def test_the_limit_is_the_whole_frame() -> None:
    fits = json_frame(b"x" * 4000)
    size = len(fits)
    assert len(FrameDecoder(max_frame=size).feed(fits)) == 1
    with pytest.raises(BadFrame, match="frame of"):
        FrameDecoder(max_frame=size - 1).feed(fits[:4])


def test_limits_by_default() -> None:
    FrameDecoder().feed(b"\0\xff\xff\xfc\0\0\0\0")
    for claim in (b"\0\xff\xff\xfd", b"\0\xff\xff\xfc\0\x04\0\x01"):
        with pytest.raises(BadFrame):
            FrameDecoder().feed(claim)
    large = {"a": "x" * (256 * 1024 - 100)}
    assert decoded(json_frame(extFields=large)).fields == large


@pytest.mark.parametrize(
    "claim",
    [
        b"\x40\0\0\0",
        b"\x40\0\0\0\0\0\0\x02{}",
        b"\0\xff\xff\x00\0\0\0\x02{}",
        b"\0\xff\xff\x00\x01\x03\xff\xff" + FIXED + b"\x7f\xff\xff\xff",
    ],
)
def test_lengths_are_only_claims(claim: bytes) -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        outcome([claim], decoder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_a_header_that_does_not_fit() -> None:
    command = Command(1, 1, fields={"k" * 0x8000: "v"}, serialization=Serialization.BINARY)
    with pytest.raises(BadFrame, match="32767"):
        encode_command(command)
    command = Command(1, 1, fields={"k": "v" * 0x1000000})
    with pytest.raises(BadFrame, match="header"):
        encode_command(command)


def test_a_negative_remark_whose_sum_is_right() -> None:
    """Read 12 bytes too early, opaque is the size of the fields, and flag the start of one."""
    header = b"\0\x22\0\0\0" + (65_541).to_bytes(4) + bytes(4) + b"\xff\xff\xff\xf4" + bytes(65_533)
    with pytest.raises(BadFrame, match="contradict"):
        FrameDecoder().feed(frame(header, serialization=1))


@few(300)
@given(st.lists(st.binary(max_size=100), max_size=5))
def test_noise(chunks: list[bytes]) -> None:
    outcome(chunks)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(b"".join(map(encode_command, draw(st.lists(commands, min_size=1, max_size=4)))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data)


@few(300)
@given(damaged(), st.integers(1, 60))
def test_a_stream_means_the_same_however_it_is_cut(data: bytes, size: int) -> None:
    whole = outcome([data])
    assert outcome(pieces(data, size)) == whole
    for command in whole[0]:
        assert decoded(encode_command(command)) == command


def test_json_of_another_implementation() -> None:
    """The standard library's, with blanks and escapes."""
    fields = {"i": PROPERTIES, "t": 'é"\\/\u2028😀'}
    header = json.dumps({"code": 10, "opaque": -1, "extFields": fields}, indent=1).encode()
    assert decoded(frame(header)).fields == fields
