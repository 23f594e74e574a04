"""Requests that clients in wide use send wrong, and that Kafka understands all the same."""

_METADATA = 3
_FIRST_FLEXIBLE_METADATA = 9
_LAST_WITH_CLUSTER_OPERATIONS = 10
_NULL = 0


def repaired(api_key: int, version: int, frame: memoryview, pos: int) -> memoryview:
    """The frame as its sender meant it; `pos` is where the body starts.

    librdkafka, asking for all topics, writes the null list in four bytes where one is due. Kafka ignores
    the bytes that are then too many; the flags behind them mean nothing when all topics are asked for.
    """
    if api_key != _METADATA or version < _FIRST_FLEXIBLE_METADATA or pos >= len(frame) or frame[pos] != _NULL:
        return frame
    flags = 3 if version <= _LAST_WITH_CLUSTER_OPERATIONS else 2
    size = 1 + flags + 1
    return frame[: pos + size] if not any(frame[pos : pos + 4]) else frame
