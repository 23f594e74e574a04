"""What a client sends behind connection.open, byte for byte: another broker may have to answer it.

Clients need not wait for open-ok. Of what they send before nothing is kept but the start of one frame.
"""

from typing import Final

from posthouse.protocols.amqp.codec.framing import CONNECTION_OPEN, FRAME, METHOD_FRAME, OVERHEAD, PROTOCOL

_INDEX_BYTES: Final = 4


class BehindOpen:
    """Fed with all bytes of a connection, in chunks of any size. What it makes of bytes that the decoder
    refuses has no meaning."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self._start = bytearray()
        """Of a frame, until it is known whether it is connection.open."""
        self._left = len(PROTOCOL)
        """Bytes of the protocol header or of a frame that are not looked at."""
        self._is_open = False
        """Those are the last ones of connection.open."""

    def feed(self, data: bytes) -> None:
        pos = 0
        while pos < len(data):
            if self._left:
                passed = min(self._left, len(data) - pos)
                pos += passed
                self._left -= passed
            elif self._is_open:
                self.kept += data[pos:]
                return
            else:
                self._start.append(data[pos])
                pos += 1
                self._look()

    def _look(self) -> None:
        start = self._start
        if len(start) < FRAME.size:
            return
        kind, channel, length = FRAME.unpack_from(start)
        has_index = kind == METHOD_FRAME and length >= _INDEX_BYTES
        if has_index and len(start) < FRAME.size + _INDEX_BYTES:
            return
        index = int.from_bytes(start[FRAME.size :]) if has_index else 0
        self._is_open = index == CONNECTION_OPEN and channel == 0
        self._left = length + OVERHEAD - len(start)
        start.clear()
