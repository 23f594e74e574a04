"""Equality of header values.

As in RabbitMQ, the value decides and not its encoding: 1 equals 1.0, a string equals the byte array with its
bytes, a time equals its seconds. Values of different kinds differ: 1 from "1" and from true, a decimal from a
float.
"""

from collections.abc import Hashable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEEPEST = 64


def comparable(value: object, depth: int = 0) -> Hashable:
    """A hashable that is equal for two values if and only if these are the same.

    A value that cannot be compared (not a number, nested too deeply, of unknown type) equals no value.
    """
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, int | float):
        return object() if value != value else value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime):
        return since_1970(value) // timedelta(seconds=1)  # AMQP has no fractions
    if isinstance(value, Decimal):
        return ("decimal", value.as_tuple())
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return ("table", frozenset((name, comparable(each, depth + 1)) for name, each in value.items()))
        if isinstance(value, list | tuple):
            return ("list", tuple(comparable(each, depth + 1) for each in value))
    return object()


def since_1970(time: datetime) -> timedelta:
    """A time without a zone is in UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH
