"""The protobuf library as the oracle, in both directions."""

from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.grpc.messages.definition import Address, OffsetOption, Status
from posthouse.protocols.rocketmq.grpc.messages.errors import MalformedMessage
from posthouse.protocols.rocketmq.grpc.messages.fields import Kind, Presence
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.well_known import Timestamp
from posthouse.protocols.rocketmq.grpc.messages.wire import varint
from tests.protocols.rocketmq.grpc.messages.grpc_message_cases import (
    MESSAGES,
    few,
    messages,
    ours,
    their_class,
    theirs,
)

every_message = pytest.mark.parametrize("kind", MESSAGES.values(), ids=lambda kind: kind.__name__)

# Numbers no message has, in all wire types but groups.
_unknown_fields = st.lists(
    st.tuples(
        st.integers(40, (1 << 29) - 1),
        st.sampled_from(
            [
                (0, b"\x00"),
                (0, b"\xff" * 9 + b"\x01"),
                (1, bytes(8)),
                (5, bytes(4)),
                (2, b"\x00"),
                (2, b"\x03abc"),
            ]
        ),
    ).map(lambda field: varint(field[0] << 3 | field[1][0]) + field[1][1]),
    max_size=3,
).map(b"".join)


@every_message
def test_they_read_what_we_write(kind: type[ProtoMessage]) -> None:
    @few(15)
    @given(messages(kind))
    def check(message: ProtoMessage) -> None:
        assert their_class(kind).FromString(message.encode()) == theirs(message)

    check()


@every_message
def test_we_write_as_many_bytes_as_they_do(kind: type[ProtoMessage]) -> None:
    @few(15)
    @given(messages(kind))
    def check(message: ProtoMessage) -> None:
        assert len(message.encode()) == theirs(message).ByteSize()

    check()


@every_message
def test_we_read_what_they_write(kind: type[ProtoMessage]) -> None:
    @few(15)
    @given(messages(kind), _unknown_fields)
    def check(message: ProtoMessage, unknown: bytes) -> None:
        data = theirs(message).SerializeToString()
        assert kind.decode(data) == message
        assert kind.decode(unknown + data + unknown) == message

    check()


@every_message
def test_messages_one_after_the_other_are_merged(kind: type[ProtoMessage]) -> None:
    @few(15)
    @given(st.lists(messages(kind), min_size=2, max_size=3))
    def check(several: list[ProtoMessage]) -> None:
        expected = their_class(kind)()
        for each in several:
            expected.MergeFrom(theirs(each))
        assert kind.decode(b"".join(each.encode() for each in several)) == ours(expected, kind)

    check()


@pytest.mark.parametrize("bits", range(63))
def test_numbers_of_all_sizes(bits: int) -> None:
    limit = 1 << bits
    for number in (limit - 1, limit, -limit, -limit - 1):
        found: list[ProtoMessage] = [OffsetOption(offset=number), Timestamp(seconds=number)]
        if bits < 31:
            found += [Address(port=number), Timestamp(nanos=number), Status(code=number)]
        for message in found:
            data = message.encode()
            assert data == theirs(message).SerializeToString()
            assert type(message).decode(data) == message


def has_oneof(kind: type[ProtoMessage]) -> bool:
    fields = kind.fields.values()
    return any(each.oneof or (each.kind is Kind.MESSAGE and has_oneof(each.type)) for each in fields)


def without_maps(message: ProtoMessage) -> Any:
    """The library drops an entry of a map with an unknown field. We skip the field, as in any message."""
    values: dict[str, Any] = {}
    for name, field in message.fields.items():
        value = getattr(message, name)
        if field.kind is Kind.STRING_MAP:
            values[name] = {}
        elif field.kind is Kind.MESSAGE and value is not None:
            is_one = field.presence is not Presence.REPEATED
            values[name] = without_maps(value) if is_one else tuple(map(without_maps, value))
    return msgspec.structs.replace(message, **values)


def outcome(kind: type[ProtoMessage], data: bytes) -> Any:
    try:
        return kind.decode(data)
    except MalformedMessage as error:
        return error


@every_message
def test_we_refuse_what_they_refuse(kind: type[ProtoMessage]) -> None:
    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        several = draw(st.lists(messages(kind), min_size=1, max_size=2))
        data = bytearray(b"".join(each.encode()[:300] for each in several))
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(data)))
            data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
        return bytes(data)

    @few(60)
    @given(damaged() | st.binary(max_size=30))
    def check(data: bytes) -> None:
        found = outcome(kind, data)
        if "is a group" in str(found):
            return
        try:
            expected = their_class(kind).FromString(data)
        except DecodeError:
            # We do not look at what another member of a oneof has replaced.
            assert isinstance(found, MalformedMessage) or has_oneof(kind)
        else:
            found, read = without_maps(found), without_maps(ours(expected, kind))
            assert found == read or ("nan" in repr(read) and repr(found) == repr(read))

    check()
