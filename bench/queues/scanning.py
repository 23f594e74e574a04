"""Counting what a broker sends, by arithmetic wherever frames have a known length.

Every count is checked against the numbers that the broker itself gives: a scanner that has lost its step
raises instead of counting nonsense.
"""

import socket
import struct

from bench.queues import frames

_NUMBER = struct.Struct(">Q")
_METHOD = struct.Struct(">HH")


class OutOfStep(Exception):
    """The broker sent something else than was waited for."""


class Confirms:
    """Which publishes the broker has confirmed: in any order, one by one or many at once."""

    def __init__(self) -> None:
        self._floor = 0
        """All up to this one are confirmed."""
        self._above: set[int] = set()
        self._rest = b""

    @property
    def count(self) -> int:
        return self._floor + len(self._above)

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % frames.SETTLEMENT.size
        self._rest = data[whole:]
        floor, above = self._floor, self._above
        for kind, _, _, class_id, number, tag, multiple, end in frames.SETTLEMENT.iter_unpack(data[:whole]):
            if kind != frames.METHOD or (class_id, number) != frames.ACK or end != frames.END:
                raise OutOfStep(f"not a confirm: {described(data)}")
            if multiple:
                if tag > floor:
                    floor = tag
                    above = {each for each in above if each > floor}
            elif tag == floor + 1:
                floor = tag
            elif tag > floor:
                above.add(tag)
            while above and floor + 1 in above:
                floor += 1
                above.remove(floor)
        self._floor, self._above = floor, above


class Deliveries:
    """Messages of one size on one channel; how many bytes each takes is learnt from the first."""

    def __init__(self, already: bytes = b"", room: int = 1 << 20) -> None:
        self.buffer = bytearray(max(room, 2 * len(already)))
        self.buffer[: len(already)] = already
        self.count = 0
        self.size = 0
        """Bytes of one message with all its frames; 0 before there is one."""
        self.body_at = 0
        self._number_at = 0
        self._filled = len(already)
        self._view = memoryview(self.buffer)

    def receive(self, connection: socket.socket) -> None:
        received = connection.recv_into(self._view[self._filled :])
        if not received:
            raise ConnectionError("the broker has closed the connection")
        self._filled += received

    def take(self) -> int:
        """How many whole messages are in the buffer now: they start at its beginning. Then call `drop`."""
        if not self.size and not self._learn():
            return 0
        whole = self._filled // self.size
        if whole:
            last = (whole - 1) * self.size
            (number,) = _NUMBER.unpack_from(self.buffer, last + self._number_at)
            ends = self.buffer[last + self.size - 1]
            if number != self.count + whole or ends != frames.END or self.buffer[last] != frames.METHOD:
                raise OutOfStep(f"delivery {number} where {self.count + whole} was due: {self._told(last)}")
            self.count += whole
        return whole

    def drop(self, whole: int) -> None:
        """Make room: the messages that were taken are of no more use."""
        start = whole * self.size
        rest = self._filled - start
        self._view[:rest] = self._view[start : self._filled]
        self._filled = rest

    def bodies_start_with(self, whole: int) -> list[int]:
        """The first eight bytes of each body among those taken, as numbers."""
        starts = (self.body_at + each * self.size for each in range(whole))
        return [_NUMBER.unpack_from(self.buffer, start)[0] for start in starts]

    def _learn(self) -> bool:
        """Walk over the first message frame by frame; False where it is not complete yet."""
        if self._filled < frames.HEAD.size + _METHOD.size:
            return False
        if _METHOD.unpack_from(self.buffer, frames.HEAD.size) != frames.DELIVER:
            raise OutOfStep(f"not a delivery: {self._told(0)}")
        header = self._after(0)
        if header is None or (body := self._after(header)) is None:
            return False
        (left,) = _NUMBER.unpack_from(self.buffer, header + frames.HEAD.size + 4)
        end = body
        while left:
            following = self._after(end)
            if following is None:
                return False
            left -= following - end - frames.OVERHEAD
            end = following
        tag_length = self.buffer[frames.HEAD.size + _METHOD.size]
        self._number_at = frames.HEAD.size + _METHOD.size + 1 + tag_length
        self.body_at = body + frames.HEAD.size
        self.size = end
        return True

    def _after(self, start: int) -> int | None:
        """Where the frame after the one at `start` begins, if that one is complete."""
        if start + frames.HEAD.size > self._filled:
            return None
        end = start + frames.OVERHEAD + int(frames.HEAD.unpack_from(self.buffer, start)[2])
        return end if end <= self._filled else None

    def _told(self, start: int) -> str:
        return described(bytes(self.buffer[start : min(start + 400, self._filled)]))


def described(data: bytes) -> str:
    """An unexpected frame in words: mostly a close with its reason."""
    head = frames.HEAD.size
    if len(data) >= head + _METHOD.size and data[0] == frames.METHOD:
        number = _METHOD.unpack_from(data, head)
        arguments = data[head + _METHOD.size :]
        if number in (frames.CLOSE, frames.CHANNEL_CLOSE) and len(arguments) >= 3:
            text = arguments[3 : 3 + arguments[2]].decode(errors="replace")
            return f"closed with {int.from_bytes(arguments[:2], 'big')}, {text}"
        if number == frames.NACK:
            return "the broker refused a message"
    return data[:60].hex(" ")
