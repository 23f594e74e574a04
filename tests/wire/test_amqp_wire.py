"""The wire client itself: messages in parts, with other frames between them."""

from pamqp import body, frame, header
from pamqp.commands import Basic, Queue

from tests.wire.amqp import Content, MessageAssembler, frame_length, message_frames

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def split(stream: bytes) -> list[bytes]:
    frames = []
    while stream:
        frames.append(stream[: frame_length(stream)])
        stream = stream[len(frames[-1]) :]
    return frames


def delivered(message: bytes, part: int) -> list[bytes]:
    head = header.ContentHeader(0, len(message), Basic.Properties(message_id="m"))
    parts = [message[start : start + part] for start in range(0, len(message), part)]
    return [
        frame.marshal(Basic.Deliver("c", 1, False, "", "q"), 3),
        frame.marshal(head, 3),
        *(frame.marshal(body.ContentBody(each), 3) for each in parts),
    ]


def test_a_method_is_complete_at_once() -> None:
    got = MessageAssembler().take(frame.marshal(Queue.DeleteOk(5), 2))
    assert got is not None
    assert (got[0], got[1].message_count) == (2, 5)


def test_a_message_is_complete_with_its_last_part() -> None:
    assembler = MessageAssembler()
    first, *rest = delivered(b"0123456789", 4)
    found = [assembler.take(each) for each in (first, HEARTBEAT, *rest)]
    assert found[:-1] == [None] * 5
    channel, content = found[-1] or (0, None)
    assert channel == 3
    assert isinstance(content, Content)
    assert (content.body, content.properties.message_id) == (b"0123456789", "m")
    assert assembler.heartbeats == 1


def test_an_empty_message_is_complete_with_its_header() -> None:
    assembler = MessageAssembler()
    assert [assembler.take(each) is None for each in delivered(b"", 4)] == [True, False]


def test_a_published_message() -> None:
    frames = split(message_frames(1, Basic.Publish(0, "", "q"), b"012345", Basic.Properties(), part=4))
    kinds = [type(frame.unmarshal(each)[2]) for each in frames]
    assert kinds == [Basic.Publish, header.ContentHeader, body.ContentBody, body.ContentBody]
