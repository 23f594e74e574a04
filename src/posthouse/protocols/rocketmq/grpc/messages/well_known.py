"""google.protobuf.Timestamp and Duration.

Peers can send any two numbers: `ms` may need more than 64 bits.
"""

from typing import Self

from posthouse.protocols.rocketmq.grpc.messages.fields import int32, int64
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage

_NANOS_PER_MS = 1_000_000


class Timestamp(ProtoMessage):
    """A point in time: seconds since 1970, and nanoseconds that count forward."""

    seconds: int = int64(1)
    nanos: int = int32(2)

    @classmethod
    def from_ms(cls, milliseconds: int) -> Self:
        seconds, rest = divmod(milliseconds, 1000)
        return cls(seconds=seconds, nanos=rest * _NANOS_PER_MS)

    @property
    def ms(self) -> int:
        """Rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MS


class Duration(ProtoMessage):
    """A time span; both parts of a negative one are negative."""

    seconds: int = int64(1)
    nanos: int = int32(2)

    @classmethod
    def from_ms(cls, milliseconds: int) -> Self:
        seconds, rest = divmod(abs(milliseconds), 1000)
        sign = -1 if milliseconds < 0 else 1
        return cls(seconds=sign * seconds, nanos=sign * rest * _NANOS_PER_MS)

    @property
    def ms(self) -> int:
        """Rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MS
