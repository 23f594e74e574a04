"""Frames, methods and properties made by pamqp, and how its values compare with ours."""

import datetime
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pamqp import base, body, commands, frame, header

from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.errors import FrameError
from posthouse.protocols.amqp.codec.events import METHOD, Event
from posthouse.protocols.amqp.codec.framing import PROTOCOL
from posthouse.protocols.amqp.codec.tables import Timestamp
from tests.examples import examples

FRAME_MAX = 4096
COMMANDS: list[type[base.Frame]] = list(commands.INDEX_MAPPING.values())
# pamqp insists on these.
_FIXED = ("ticket", "capabilities", "insist", "out_of_band", "channel_id", "known_hosts", "cluster_id")


def few(most: int) -> settings:
    return settings(max_examples=examples(most), deadline=None, suppress_health_check=list(HealthCheck))


def opened(*, frame_max: int = FRAME_MAX, max_body: int = 1 << 20) -> Decoder:
    decoder = Decoder(frame_max=frame_max, max_body=max_body)
    decoder.feed(PROTOCOL)
    return decoder


def method(command: base.Frame, channel: int = 1) -> bytes:
    return frame.marshal(command, channel)


def content_header(size: int, properties: bytes = b"\0\0", channel: int = 1, kind: int = 60 << 16) -> bytes:
    return raw(2, channel, kind.to_bytes(4) + size.to_bytes(8) + properties)


def content_body(data: bytes, channel: int = 1) -> bytes:
    return frame.marshal(body.ContentBody(data), channel)


def raw(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return bytes((kind,)) + channel.to_bytes(2) + len(payload).to_bytes(4) + payload + end


def publish(
    data: bytes,
    properties: bytes = b"\0\0",
    *,
    exchange: str = "",
    key: str = "",
    mandatory: bool = False,
    channel: int = 1,
    cuts: Sequence[int] = (),
) -> bytes:
    command = commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
    edges = [0, *cuts, len(data)]
    parts = [data[start:end] for start, end in pairwise(edges)]
    return b"".join(
        (
            method(command, channel),
            content_header(len(data), properties, channel),
            *(content_body(part, channel) for part in parts if part),
        )
    )


def outcome(decoder: Decoder, chunks: Iterable[bytes]) -> tuple[list[Any], int]:
    """Comparable events, and the code of the error that ended them or 0."""
    events: list[Event] = []
    try:
        for chunk in chunks:
            events += decoder.feed(chunk)
    except FrameError as error:
        events += error.events
        return [comparable(event) for event in events], error.code
    return [comparable(event) for event in events], 0


def comparable(event: Event) -> Any:
    return (*event[:2], *described(event[2])) if event[0] == METHOD else event


def described(command: base.Frame) -> tuple[str, dict[str, Any]]:
    return command.name, {name: normal(value) for name, value in command}


def normal(value: Any) -> Any:
    match value:
        case dict():
            return {name: normal(entry) for name, entry in value.items()}
        case list():
            return [normal(entry) for entry in value]
        case bytearray():
            return bytes(value)
        case datetime.datetime():
            return int(value.timestamp())
        case _:
            return value


def with_our_times(value: Any) -> Any:
    match value:
        case dict():
            return {name: with_our_times(entry) for name, entry in value.items()}
        case list():
            return [with_our_times(entry) for entry in value]
        case datetime.datetime():
            return Timestamp(value.timestamp())
        case _:
            return value


short_texts = st.text("abcXYZ019-_.:@#,/+ ", max_size=30)
_times = st.integers(0, (1 << 32) - 1).map(
    lambda seconds: datetime.datetime.fromtimestamp(seconds, datetime.UTC)
)
_decimals = st.builds(
    lambda unscaled, scale: Decimal(unscaled).scaleb(-scale),
    st.integers(0, (1 << 31) - 1),
    st.integers(0, 20),
)
_simple_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(width=32, allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20).map(bytearray),
    _times,
    _decimals,
)
_names = st.text(min_size=1, max_size=20)
table_values = st.recursive(
    _simple_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(_names, table_values, max_size=5)

_ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 0xFFFF),
    "long": st.integers(0, 0xFFFFFFFF),
    "longlong": st.integers(0, (1 << 63) - 1),
    "shortstr": short_texts,
    "longstr": st.text(max_size=50),
    "table": tables,
}


def commands_of(kind: type[base.Frame]) -> st.SearchStrategy[base.Frame]:
    names = [name for name in kind.attributes() if name not in _FIXED]
    arguments = {name: _ARGUMENTS[kind.amqp_type(name)] for name in names}
    return st.fixed_dictionaries(arguments).map(lambda values: kind(**values))


any_command = st.sampled_from(COMMANDS).flatmap(commands_of)

_property_texts = st.text(min_size=1, max_size=20)
properties = st.builds(
    commands.Basic.Properties,
    content_type=st.none() | _property_texts,
    content_encoding=st.none() | _property_texts,
    headers=st.none() | tables.filter(bool),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | _property_texts,
    reply_to=st.none() | _property_texts,
    expiration=st.none() | st.integers(0, 100_000).map(str),
    message_id=st.none() | _property_texts,
    timestamp=st.none() | _times,
    message_type=st.none() | _property_texts,
    user_id=st.none() | _property_texts,
    app_id=st.none() | _property_texts,
)


def frames_of(data: bytes) -> list[tuple[int, Any]]:
    """All frames in `data` as pamqp reads them, with their channels."""
    frames = []
    while data:
        size, channel, value = frame.unmarshal(data)
        frames.append((channel, value))
        data = data[size:]
    return frames


def content_in(data: bytes) -> tuple[int, Any, header.ContentHeader, bytes, int]:
    """Channel, method, header, whole body, and size of the largest body frame."""
    (channel, command), (second, head), *bodies = frames_of(data)
    assert isinstance(command, base.Frame)
    assert isinstance(head, header.ContentHeader)
    assert {second, *(number for number, _ in bodies)} == {channel}
    assert all(isinstance(part, body.ContentBody) for _, part in bodies)
    values = [part.value for _, part in bodies]
    whole = b"".join(values)
    assert head.body_size == len(whole)
    return channel, command, head, whole, max(map(len, values), default=0)
