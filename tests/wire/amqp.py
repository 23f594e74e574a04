"""The client side of AMQP 0-9-1, without I/O: frames become methods and whole messages, and back.

It reads and writes with pamqp alone, so that it shares no mistake with the broker's codec. Its faces:

    tests/protocols/amqp/wire.py     asyncio streams
    tests/simulation/amqp_wire.py    an asyncio protocol, for the simulated network

`bench/queues` writes its frames by hand, because a load generator has no time for a library; `tests/bench`
compares them with pamqp's.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any

from pamqp import body, frame, header, heartbeat
from pamqp.commands import Basic

FRAME_START = Struct(">BHI")
"""Kind, channel, length; that many bytes and an end byte follow."""
_BODY_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Content:
    """A method that came with a message: deliver, get-ok or return."""

    method: Any
    properties: Basic.Properties
    body: bytes


def frame_length(start: bytes | bytearray) -> int:
    """Of a whole frame that starts so."""
    return FRAME_START.size + int(FRAME_START.unpack_from(start)[2]) + 1


def message_frames(
    channel: int, method: Basic.Publish, message: bytes, properties: Basic.Properties, part: int = _BODY_BYTES
) -> bytes:
    """A publish, its header, and its body in parts of at most `part` bytes."""
    return (
        frame.marshal(method, channel)
        + frame.marshal(header.ContentHeader(0, len(message), properties), channel)
        + b"".join(
            frame.marshal(body.ContentBody(message[start : start + part]), channel)
            for start in range(0, len(message), part)
        )
    )


class MessageAssembler:
    """Puts frames together: a method comes alone, or as a Content with the whole message."""

    def __init__(self) -> None:
        self.heartbeats = 0
        self._unfinished: list[Any] = []
        """A method whose message is on its way, its header, and parts of its body."""

    def take(self, data: bytes) -> tuple[int, Any] | None:
        """The channel and what this frame completes. Heartbeats are counted and complete nothing."""
        _, channel, got = frame.unmarshal(data)
        if isinstance(got, heartbeat.Heartbeat):
            self.heartbeats += 1
            return None
        if isinstance(got, Basic.Deliver | Basic.GetOk | Basic.Return):
            self._unfinished = [got]
            return None
        if not isinstance(got, header.ContentHeader | body.ContentBody):
            return channel, got
        self._unfinished.append(got)
        method, head, *parts = self._unfinished
        if sum(len(part.value) for part in parts) < head.body_size:
            return None
        return channel, Content(method, head.properties, b"".join(part.value for part in parts))
