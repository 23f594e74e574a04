"""Requests of a Kafka connection that wait for their responses. Each frame has its size before it, and
responses come in the order of the requests."""

from collections import deque

from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY
from posthouse.protocols.kafka.handlers import (
    describe_cluster,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    list_offsets,
    metadata,
    produce,
    sasl_authenticate,
    sasl_handshake,
)

_SIZE = 4
_HEAD = 6
"""The size, and the first field: of a request, the key of its kind."""
_MOST_BYTES = 64 * 1024
_REPEATABLE = frozenset(
    {
        API_VERSIONS_KEY,
        describe_cluster.HANDLER.key,
        fetch.HANDLER.key,
        find_coordinator.HANDLER.key,
        get_telemetry_subscriptions.HANDLER.key,
        list_offsets.HANDLER.key,
        metadata.HANDLER.key,
    }
)
"""Requests that change nothing: they may be sent twice."""
_LASTING = frozenset({produce.HANDLER.key, sasl_authenticate.HANDLER.key, sasl_handshake.HANDLER.key})
"""A connection remembers a login, and a produce request may have no response."""


class KafkaFrames:
    """One direction of one connection."""

    __slots__ = ("_frame", "_left")

    def __init__(self) -> None:
        self._frame = bytearray()
        """The first bytes of the frame that is under way."""
        self._left = 0
        """Bytes of it that are still to come, once its size is known."""

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, of long ones the beginning."""
        found: list[bytes] = []
        position = 0
        while position < len(data):
            missing = self._left or _HEAD - len(self._frame)
            part = data[position : position + missing]
            position += len(part)
            if len(self._frame) < _MOST_BYTES:
                self._frame += part
            if self._left:
                self._left -= len(part)
            elif len(self._frame) == _HEAD:
                self._left = max(int.from_bytes(self._frame[:_SIZE], "big") - (_HEAD - _SIZE), 0)
            else:
                continue
            if not self._left:
                found.append(bytes(self._frame))
                self._frame.clear()
        return found

    @property
    def is_between(self) -> bool:
        """Whether the last frame is complete."""
        return not self._frame


class OpenRequests:
    """What must be sent again to another broker so that the client notices nothing."""

    __slots__ = ("_can_change_brokers", "_open", "_requests", "_responses")

    def __init__(self) -> None:
        self._requests = KafkaFrames()
        self._responses = KafkaFrames()
        self._open: deque[bytes | None] = deque()
        """None for a request that must not be sent twice."""
        self._can_change_brokers = True

    def sent(self, data: bytes) -> None:
        for frame in self._requests.feed(data):
            key = int.from_bytes(frame[_SIZE:_HEAD], "big")
            is_whole = len(frame) == _SIZE + int.from_bytes(frame[:_SIZE], "big")
            if key in _LASTING:
                self._can_change_brokers = False
            self._open.append(frame if key in _REPEATABLE and is_whole else None)

    def received(self, data: bytes) -> None:
        for _ in self._responses.feed(data):
            if self._open:
                self._open.popleft()

    def to_repeat(self) -> bytes | None:
        """The requests without a response; None if the connection has to end."""
        if not (self._can_change_brokers and self._requests.is_between and self._responses.is_between):
            return None
        frames = [frame for frame in self._open if frame is not None]
        return b"".join(frames) if len(frames) == len(self._open) else None
