"""grpc-timeout: how long the client waits."""

from typing import Final

from posthouse.protocols.grpc.status import GrpcError, Status

_SECONDS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MOST_DIGITS: Final = 8


def read_timeout(value: bytes) -> float:
    """In seconds. Raises GrpcError."""
    unit = _SECONDS.get(value[-1:])
    digits = value[:-1]
    if unit is None or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise GrpcError(Status.INTERNAL, f"the timeout is {value[:20]!r}: not a number with a unit")
    return int(digits) * unit
