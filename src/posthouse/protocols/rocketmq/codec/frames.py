"""Frames out of a stream, however it is cut, and back.

length    4 bytes: of all that follows
header    4 bytes: the serialisation in the top byte, the length of the header in the others
          the header
body      the rest
"""

from struct import Struct
from typing import Final

from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.errors import BadFrame
from posthouse.protocols.rocketmq.codec.headers import (
    decode_binary_header,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
)

DEFAULT_MAX_FRAME: Final = 16 * 1024 * 1024
"""Upstream's, with the four bytes of the length itself."""
DEFAULT_MAX_HEADER: Final = 256 * 1024
"""Bytes of a header, whose decoded fields need up to 30 times as much. Properties, its largest part, have
32 KiB at most; in JSON a byte of them may be six."""
_LENGTH_SIZE: Final = 4
_BODY_OFFSET: Final = 8
_LARGEST_HEADER: Final = 0xFFFFFF

_length = Struct(">i").unpack_from
_lengths = Struct(">iI")
_read_lengths = _lengths.unpack_from
_pack_lengths = _lengths.pack

_DECODERS: Final = (decode_json_header, decode_binary_header)


class FrameDecoder:
    """For one connection.

    A frame is decoded when all of it is there: what is kept is less than `max_frame`. After BadFrame further
    input is ignored, since the connection has to end.
    """

    def __init__(self, *, max_frame: int = DEFAULT_MAX_FRAME, max_header: int = DEFAULT_MAX_HEADER) -> None:
        self._max_frame = max_frame
        self._max_header = max_header
        self._rest = bytearray()
        self._need = _LENGTH_SIZE
        self._is_lost = False

    @property
    def held(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._rest)

    def forget(self) -> None:
        """The connection is lost: drop the incomplete frame, and ignore further input."""
        self._is_lost = True
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Command]:
        """Every command that is complete with `data`. Raises BadFrame, once."""
        if self._is_lost:
            return []
        if self._rest:
            if len(self._rest) + len(data) < self._need:
                self._rest += data
                return []
            data = b"".join((self._rest, data))
            self._rest = bytearray()
        commands: list[Command] = []
        try:
            pos = self._commands(data, commands)
        except BadFrame as error:
            self._is_lost = True
            error.commands = commands
            raise
        if pos < len(data):
            self._rest += memoryview(data)[pos:]
        return commands

    def _commands(self, data: bytes, commands: list[Command]) -> int:
        """Decode frames; returns the position of the first incomplete one."""
        pos = 0
        available = len(data)
        while available - pos >= _BODY_OFFSET:
            length, mark = _read_lengths(data, pos)
            end = pos + 4 + length
            header_size = mark & _LARGEST_HEADER
            serialization = mark >> 24
            if not 4 <= length <= self._max_frame - 4:
                raise self._bad_length(length)
            if serialization >= len(_DECODERS):
                raise BadFrame(f"a header in serialisation {serialization}; 0 (JSON) and 1 (binary) exist")
            if header_size > length - 4 or header_size > self._max_header:
                raise BadFrame(f"a header of {header_size} bytes in a frame of {length}")
            if end > available:
                self._need = 4 + length
                return pos
            start = pos + _BODY_OFFSET
            body_at = start + header_size
            commands.append(_DECODERS[serialization](data[start:body_at], data[body_at:end]))
            pos = end
        self._need = _LENGTH_SIZE
        if available - pos >= _LENGTH_SIZE:
            (length,) = _length(data, pos)
            if not 4 <= length <= self._max_frame - 4:
                raise self._bad_length(length)
            self._need = _BODY_OFFSET
        return pos

    def _bad_length(self, length: int) -> BadFrame:
        return BadFrame(f"a frame of {length} bytes: 4 to {self._max_frame - 4} are allowed")


def encode_command(command: Command) -> bytes:
    """One frame, its header in the command's serialisation."""
    if command.serialization is Serialization.JSON:
        header = encode_json_header(command)
    else:
        header = encode_binary_header(command)
    size = len(header)
    if size > _LARGEST_HEADER:
        raise BadFrame(f"a header of {size} bytes: {_LARGEST_HEADER} are possible")
    body = command.body
    return b"".join((_pack_lengths(4 + size + len(body), command.serialization << 24 | size), header, body))
