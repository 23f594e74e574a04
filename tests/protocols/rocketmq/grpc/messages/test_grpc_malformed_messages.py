"""What peers can get wrong, byte by byte, and values that do not fit."""

import time
import tracemalloc
from typing import Any

import msgspec
import pytest

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Address,
    Endpoints,
    Message,
    MessageQueue,
    OffsetOption,
    Resource,
    Status,
    SystemProperties,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType
from posthouse.protocols.rocketmq.grpc.messages.errors import MalformedMessage
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageRequest,
    PullMessageResponse,
    ReceiveMessageResponse,
    SendMessageRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    ExponentialBackoff,
    Subscription,
    TelemetryCommand,
)
from posthouse.protocols.rocketmq.grpc.messages.wire import MOST_ELEMENTS, varint

ENDLESS = b"\xff" * 10 + b"\x01"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x12", "ends within"),
        (b"\x12\x05ab", "longer than"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "longer than"),
        (b"\x08", "ends within"),
        (b"\x08\x80", "ends within"),
        (b"\x08" + ENDLESS, "more than 10 bytes"),
        (b"\x12\x02\xc3\x28", "not UTF-8"),
        (b"\x12\x03\xed\xa0\x80", "not UTF-8"),
        (b"\x00\x01", "number 0"),
        (b"\x02\x00", "number 0"),
        (b"\x80\x00\x00", "number 0"),
        (b"\xff\xff\xff\xff\x1f\x00", "29 bits"),
        (b"\x88\x80\x80\x80\x80\x00\x01", "29 bits"),
        (b"\x1b\x1c", "group"),
        (b"\x1c", "group"),
        (b"\x0b\x0c", "group"),
        (b"\x1e", "wire type 6"),
        (b"\x1f", "wire type 7"),
        (b"\x19\x00\x00", "longer than"),
        (b"\x1d\x00\x00", "longer than"),
        (b"\x1a\x05ab", "longer than"),
        (b"\x18" + ENDLESS, "more than 10 bytes"),
        (b"\x18\x80", "ends within"),
    ],
)
def test_bytes_that_are_no_status(data: bytes, what: str) -> None:
    with pytest.raises(MalformedMessage, match=what):
        Status.decode(data)
    with pytest.raises(MalformedMessage, match=what):
        Status.decode(b"\x12\x02ok" + data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        # a value that goes on beyond the end of its message, into bytes that are there
        (AckMessageRequest, b"\x0a\x01\x12\x01x"),
        (Endpoints, b"\x12\x02\x10\x80\x10\x01"),
        (MessageQueue, b"\x2a\x01\x80\x28\x01"),
        (Message, b"\x12\x02\x0a\x05\x22\x03abc"),
        (Message, b"\x12\x01\x0a\x22\x00"),
        (Message, b"\x12\x02\x10\x80\x22\x01"),
        # the float of a message that ends
        (ExponentialBackoff, b"\x1d\x00\x00"),
        # in pieces, of which the second is wrong
        (AckMessageRequest, b"\x0a\x00\x0a\x05a"),
        (AckMessageRequest, b"\x0a\x00\x0a\x00\x0a\x05a"),
        (AckMessageRequest, b"\x0a\x00\x0a\x00\x18\x80"),
        (TelemetryCommand, b"\x0a\x00\x0a\x02\x0a\x01"),
        # in pieces, of which the second begins with what the first lacks
        (AckMessageRequest, b"\x0a\x02\x12\x02\x0a\x02ab"),
        (AckMessageRequest, b"\x0a\x01\x12\x0a\x02\x01a"),
        (AckMessageRequest, b"\x0a\x01\x9a\x0a\x02\x01\x00"),
        (AckMessageRequest, b"\x0a\x02\x18\x80\x0a\x01\x00"),
    ],
)
def test_parts_that_are_longer_than_what_they_are_in(kind: type[ProtoMessage], data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        kind.decode(data)


def test_every_beginning_of_a_message_is_refused_or_read() -> None:
    properties = SystemProperties(
        tag="a", keys=("k1", "k2"), queue_offset=-1, message_group="g" * 200, priority=1 << 20
    )
    data = SendMessageRequest(
        messages=(
            Message(
                topic=Resource(name="t"), user_properties={"a": "b"}, system_properties=properties, body=b"x"
            ),
        )
    ).encode()
    for size in range(1, len(data)):
        with pytest.raises(MalformedMessage):
            SendMessageRequest.decode(data[:size])
    assert SendMessageRequest.decode(b"") == SendMessageRequest()


def test_numbers_are_cut_to_the_bits_of_their_field() -> None:
    minus_one = b"\xff" * 9 + b"\x01"
    assert Address.decode(b"\x10" + minus_one) == Address(port=-1)
    assert Address.decode(b"\x10\xff\xff\xff\xff\x0f") == Address(port=-1)
    assert Address.decode(b"\x10" + varint(1 << 32 | 5)) == Address(port=5)
    assert Address.decode(b"\x10" + b"\x85" + b"\x80" * 8 + b"\x00") == Address(port=5)
    assert Address.decode(b"\x10" + b"\xff" * 9 + b"\x7f") == Address(port=-1)
    assert OffsetOption.decode(b"\x10" + minus_one) == OffsetOption(offset=-1)
    assert Address(port=-1).encode() == b"\x10" + minus_one
    assert Status.decode(b"\x08" + minus_one) == Status(code=-1)


def test_of_equal_fields_the_last_counts_and_sub_messages_are_merged() -> None:
    assert Status.decode(b"\x12\x01a\x12\x01b") == Status(message="b")
    assert Status.decode(b"\x12\x01a\x12\x00") == Status(message="")
    data = b"\x0a\x03\x0a\x01n\x1a\x00\x0a\x03\x12\x01a\x0a\x03\x12\x01b"
    group = Resource(resource_namespace="n", name="b")
    assert AckMessageRequest.decode(data).group == group
    assert len(AckMessageRequest.decode(data).entries) == 1


def test_the_last_member_of_a_oneof_counts() -> None:
    status, message, offset = b"\x0a\x02\x08\x01", b"\x12\x03\x22\x01x", b"\x18\x05"
    assert PullMessageResponse.decode(status + offset) == PullMessageResponse(next_offset=5)
    assert PullMessageResponse.decode(offset + message) == PullMessageResponse(message=Message(body=b"x"))
    # What another member has removed is not merged with what comes after that.
    again = b"\x0a\x03\x12\x01m"
    assert PullMessageResponse.decode(status + again).status == Status(code=1, message="m")
    for between in (offset, message):
        read = PullMessageResponse.decode(status + between + again)
        assert read == PullMessageResponse(status=Status(message="m"))
        read = PullMessageResponse.decode(status + between + again + again + status)
        assert read == PullMessageResponse(status=Status(code=1, message="m"))
        assert PullMessageResponse.decode(status + again + between).status is None


def test_a_field_of_another_wire_type_is_unknown() -> None:
    assert Status.decode(b"\x0a\x01a\x10\x05") == Status()


def test_repeated_numbers_packed_or_not() -> None:
    types = (MessageType.NORMAL, MessageType.FIFO, 300, -1)
    packed = MessageQueue(accept_message_types=types).encode()
    assert packed[0] == 0x2A
    assert MessageQueue.decode(packed).accept_message_types == types
    single = b"".join(b"\x28" + varint(each % (1 << 64)) for each in types)
    assert MessageQueue.decode(single).accept_message_types == types
    assert MessageQueue.decode(single + packed).accept_message_types == types * 2
    assert type(MessageQueue.decode(packed).accept_message_types[0]) is MessageType


def test_entries_of_maps_with_parts_that_are_missing_unknown_or_twice() -> None:
    def properties(entry: bytes) -> Any:
        return Message.decode(b"\x12" + varint(len(entry)) + entry).user_properties

    assert properties(b"") == {"": ""}
    assert properties(b"\x0a\x01k") == {"k": ""}
    assert properties(b"\x12\x01v") == {"": "v"}
    assert properties(b"\x12\x01v\x0a\x01k") == {"k": "v"}
    assert properties(b"\x0a\x01k\x12\x01v\x18\x05\x12\x01w") == {"k": "w"}
    assert properties(b"\x0a\x01k\x12\xc8\x01" + b"v" * 200) == {"k": "v" * 200}
    assert properties(b"\x0a\xc8\x01" + b"k" * 200 + b"\x12\x01v") == {"k" * 200: "v"}
    with pytest.raises(MalformedMessage, match="UTF-8"):
        properties(b"\x0a\x01\xff\x12\x01v")


def test_enums_are_open() -> None:
    assert type(Status.decode(Status(code=Code.OK).encode()).code) is Code
    unknown = Status.decode(Status(code=12345).encode()).code
    assert (unknown, type(unknown)) == (12345, int)


def test_presence() -> None:
    assert SystemProperties().tag is None
    assert SystemProperties(tag="").encode() == b"\x0a\x00"
    assert SystemProperties.decode(b"\x0a\x00").tag == ""
    assert SystemProperties(message_id="").encode() == b""
    assert Subscription(fifo=False).encode() == b"\x18\x00"
    assert SendMessageRequest(messages=(Message(),)).encode() == b"\x0a\x00"


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (Address(port=1 << 31), "32 bits"),
        (Address(port=-(1 << 31) - 1), "32 bits"),
        (Status(code=1 << 31), "32 bits"),
        (MessageQueue(accept_message_types=(1 << 31,)), "32 bits"),
        (OffsetOption(offset=1 << 63), "64 bits"),
        (OffsetOption(offset=-(1 << 63) - 1), "64 bits"),
        (Status(message="\ud800"), "Unicode"),
        (Message(user_properties={"a": "\udfff"}), "Unicode"),
        (ExponentialBackoff(multiplier=1e300), "too large"),
        (OffsetOption(offset=1, tail_n=2), "offset_type"),
        (ReceiveMessageResponse(status=Status(), message=Message()), "content"),
        (TelemetryCommand(status=Status(message="\ud800")), "Unicode"),
    ],
)
def test_values_that_do_not_fit(message: ProtoMessage, what: str) -> None:
    with pytest.raises(MalformedMessage, match=what):
        message.encode()


def test_messages_do_not_change() -> None:
    status = Status(code=Code.OK)
    with pytest.raises(AttributeError):
        status.message = "x"  # type: ignore[misc]
    assert msgspec.structs.replace(status, message="x") == Status(code=Code.OK, message="x")
    assert Message().user_properties is not Message().user_properties


@pytest.mark.parametrize(
    ("kind", "element"),
    [
        (SendMessageRequest, b"\x0a\x00"),
        (AckMessageRequest, b"\x1a\x00"),
        (SystemProperties, b"\x12\x00"),
        (MessageQueue, b"\x28\x01"),
        (Message, b"\x12\x00"),  # entries of one key
        (Status, b"\x18\x00"),  # unknown fields
        (Message, b"\x1a\x00"),  # pieces
        (TelemetryCommand, b"\x12\x00"),
    ],
)
def test_elements_are_limited(kind: type[ProtoMessage], element: bytes) -> None:
    kind.decode(element * MOST_ELEMENTS)
    with pytest.raises(MalformedMessage, match="more than 10000 "):
        kind.decode(element * (MOST_ELEMENTS + 1))


def test_packed_elements_and_entries_of_maps_are_limited() -> None:
    with pytest.raises(MalformedMessage, match="10000 accept_message_types fields"):
        MessageQueue.decode(b"\x2a" + varint(MOST_ELEMENTS + 1) + bytes(MOST_ELEMENTS + 1))
    entries = [f"{each:05}".encode() for each in range(MOST_ELEMENTS + 1)]
    data = b"".join(b"\x12\x07\x0a\x05" + key for key in entries)
    with pytest.raises(MalformedMessage, match="10000 user_properties fields"):
        Message.decode(data)


def test_pieces_cost_what_their_bytes_cost() -> None:
    """Merged one after the other they would copy the first each time: 40 GB."""
    properties = SystemProperties(receipt_handle="x" * (4 << 20)).encode()
    data = b"\x1a" + varint(len(properties)) + properties + b"\x1a\x00" * (MOST_ELEMENTS - 1)
    tracemalloc.start()
    begun = time.process_time()
    read = Message.decode(data)
    spent = time.process_time() - begun
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read.system_properties == SystemProperties(receipt_handle="x" * (4 << 20))
    assert spent < 2
    assert peak < 6 * len(data)
