"""Literal bytes written from the layouts, and strategies for values."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.codes import LANGUAGES
from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.errors import BadFrame
from posthouse.protocols.rocketmq.codec.frames import FrameDecoder
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage
from tests.examples import examples

JSON_SEND = (
    b"\x00\x00\x00\x8d"  # 141 bytes follow
    b"\x00\x00\x00\x84"  # JSON, a header of 132 bytes
    b'{"code":310,"extFields":{"b":"orders","e":"3","i":"TAGS\\u0001A\\u0002"},"flag":0,'
    b'"language":"JAVA","opaque":7,"version":409,"x":[{}]}'
    b"hello"
)
BINARY_SEND = (
    b"\x00\x00\x00\x3d"  # 61 bytes follow
    b"\x01\x00\x00\x34"  # binary, a header of 52 bytes
    b"\x01\x36"  # code 310
    b"\x09"  # language GO
    b"\x01\x3d"  # version 317
    b"\x00\x00\x00\x07"  # opaque
    b"\x00\x00\x00\x00"  # flag
    b"\x00\x00\x00\x04note"
    b"\x00\x00\x00\x1b"  # 27 bytes of fields
    b"\x00\x01b\x00\x00\x00\x06orders"
    b"\x00\x01i\x00\x00\x00\x07TAGS\x01A\x02"
    b"hello"
)


def few(most: int) -> settings:
    return settings(max_examples=examples(most), deadline=None, suppress_health_check=list(HealthCheck))


def frame(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    prefix = (4 + len(header) + len(body)).to_bytes(4) + bytes([serialization]) + len(header).to_bytes(3)
    return prefix + header + body


def json_frame(body: bytes = b"", **members: Any) -> bytes:
    return frame(json.dumps({"code": 1, "opaque": 1, **members}).encode(), body)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def outcome(chunks: Sequence[bytes], decoder: FrameDecoder | None = None) -> tuple[list[Command], bool]:
    """The commands, and whether there was a fault."""
    decoder = FrameDecoder(max_frame=4096, max_header=1024) if decoder is None else decoder
    commands: list[Command] = []
    failed = False
    for chunk in chunks:
        try:
            commands += decoder.feed(chunk)
        except BadFrame as error:
            assert not failed, "a fault is told once"
            commands += error.commands
            failed = True
    return commands, failed


_int32 = st.integers(-(1 << 31), (1 << 31) - 1)
_int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_languages = st.sampled_from([*LANGUAGES, "14", "127", "255"])
commands = st.one_of(
    st.builds(
        Command,
        _int32,
        _int32,
        _int32,
        _languages | text.filter(lambda each: not each.isdecimal()),
        _int32,
        st.none() | text,
        st.dictionaries(text, text, max_size=5),
        st.binary(max_size=40),
        st.just(Serialization.JSON),
    ),
    st.builds(
        Command,
        st.integers(-(1 << 15), (1 << 15) - 1),
        _int32,
        _int32,
        _languages,
        st.integers(-(1 << 15), (1 << 15) - 1),
        st.none() | text.filter(bool),
        st.dictionaries(text, text, max_size=5),
        st.binary(max_size=40),
        st.just(Serialization.BINARY),
    ),
)
_hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
stored_messages = st.builds(
    StoredMessage,
    topic=text | st.just("t" * 127) | st.just("t" * 128) | st.just("é" * 100),
    queue=_int32,
    queue_offset=_int64,
    position=_int64,
    body=st.binary(max_size=40),
    properties=text,
    born_at=_int64,
    born_host=_hosts,
    stored_at=_int64,
    stored_host=_hosts,
    flag=_int32,
    system_flags=st.integers(0, (1 << 31) - 1),
    reconsume_times=_int32,
    prepared_position=_int64,
)
