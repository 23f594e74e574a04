"""Malformed requests of widely used clients that Kafka accepts."""

from posthouse.protocols.kafka.codec.primitives import DecodeError
from posthouse.protocols.kafka.codec.registry import decode_request

_METADATA = 3
_FIRST_FLEXIBLE_METADATA = 9
_LAST_WITH_CLUSTER_OPERATIONS = 10
_ALTER_USER_SCRAM_CREDENTIALS = 51
_NULL = 0

SENT_WRONG = frozenset({_METADATA, _ALTER_USER_SCRAM_CREDENTIALS})


def repaired(api_key: int, version: int, frame: memoryview, pos: int) -> memoryview:
    """The frame as its sender meant it; `pos` is the start of the body."""
    if api_key == _METADATA:
        return _with_short_null(version, frame, pos)
    return _ended_once(api_key, version, frame, pos)


def _with_short_null(version: int, frame: memoryview, pos: int) -> memoryview:
    """librdkafka, asking for all topics, writes the null list in four bytes instead of one. Kafka ignores the
    surplus bytes; the flags behind them have no meaning for all topics."""
    if version < _FIRST_FLEXIBLE_METADATA or pos >= len(frame) or frame[pos] != _NULL:
        return frame
    flags = 3 if version <= _LAST_WITH_CLUSTER_OPERATIONS else 2
    size = 1 + flags + 1
    return frame[: pos + size] if not any(frame[pos : pos + 4]) else frame


def _ended_once(api_key: int, version: int, frame: memoryview, pos: int) -> memoryview:
    """librdkafka ends this request twice: Kafka ignores the surplus zero byte."""
    if pos >= len(frame) or frame[-1] != _NULL:
        return frame
    try:
        decode_request(api_key, version, frame[:-1], pos)
    except DecodeError:
        return frame
    return frame[:-1]
