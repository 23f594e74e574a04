"""OpenTelemetry's metrics (OTLP, protobuf) as Kafka clients push them, to points. Sans-IO.

This reads the parts of the format that clients use: gauges, sums and histograms, with their attributes.
Unknown fields are skipped, as protobuf requires. Every length is checked against the available bytes, and the
numbers of points and attributes are bounded.

    MetricsData      1 ResourceMetrics*   1 Resource (1 KeyValue*)   2 ScopeMetrics*
    ScopeMetrics     2 Metric*            1 name   3 unit   5 gauge   7 sum   9 histogram, each with 1 point*
    NumberDataPoint     3 time   4 double   6 integer   7 KeyValue*
    HistogramDataPoint  3 time   4 count    5 sum       9 KeyValue*
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError

from posthouse.broker.telemetry.points import Attribute, MetricKind, MetricPoint, PushedMetrics

MOST_POINTS = 5_000
MOST_ATTRIBUTES = 64
"""Maximum number of attributes of the resource, and of each point."""
MOST_ATTRIBUTES_OF_ALL = 20_000
"""Maximum number of attributes of all points of a push together."""
_DOUBLE = Struct("<d").unpack_from
_UINT64 = Struct("<Q").unpack_from
_INT64 = Struct("<q").unpack_from
_NANOS = 1_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_TEXT = 1000
_KINDS = {5: MetricKind.GAUGE, 7: MetricKind.SUM, 9: MetricKind.HISTOGRAM}


class MalformedMetrics(Exception):
    """Bytes that are not valid OTLP metrics."""


def decode_metrics(data: bytes, time_ms: int) -> PushedMetrics:
    """`time_ms` is the time of arrival. Raises MalformedMetrics."""
    try:
        return _decoded(memoryview(data), time_ms)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise MalformedMetrics(f"metrics cannot be read: {error}") from None


def _decoded(data: memoryview, time_ms: int) -> PushedMetrics:
    resource: dict[str, Attribute] = {}
    points: list[MetricPoint] = []
    attributes = 0
    for message in _messages(data, 1):
        for number, value in _fields(message):
            if number == 1:
                resource |= _attributes(_bytes(value), 1)
                _check(len(resource), MOST_ATTRIBUTES, "attributes of the resource")
            elif number == 2:
                scope = _bytes(value)
                measured = (point for metric in _messages(scope, 2) for point in _points(metric))
                for point in measured:
                    points.append(point)
                    attributes += len(point.attributes)
                    _check(len(points), MOST_POINTS, "points")
                    _check(attributes, MOST_ATTRIBUTES_OF_ALL, "attributes of points")
    return PushedMetrics(time_ms=time_ms, resource=resource, points=tuple(points))


def _check(count: int, most: int, what: str) -> None:
    if count > most:
        raise MalformedMetrics(f"there are more than {most} {what}")


_Value = int | memoryview
"""A number as in a varint, or bytes."""


def _fields(data: memoryview) -> Iterator[tuple[int, _Value]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedMetrics(f"a field of the unknown kind {kind}")
        if size > len(data) - position:
            raise MalformedMetrics(f"a field of {size} bytes where {len(data) - position} are left")
        yield number, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise MalformedMetrics("a number of more than ten bytes")


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    return (_bytes(value) for number, value in _fields(data) if number == wanted)


def _points(metric: memoryview) -> Iterator[MetricPoint]:
    name = unit = ""
    data: list[tuple[MetricKind, memoryview]] = []
    for number, value in _fields(metric):
        if number == 1:
            name = _text(value)
        elif number == 3:
            unit = _text(value)
        elif number in _KINDS:
            data.append((_KINDS[number], _bytes(value)))
    for kind, points in data:
        for point in _messages(points, 1):
            is_histogram = kind is MetricKind.HISTOGRAM
            read = _histogram_point if is_histogram else _number_point
            yield read(point, name, kind, unit)


def _number_point(point: memoryview, name: str, kind: MetricKind, unit: str) -> MetricPoint:
    measured: int | float = 0
    time = 0
    for number, value in _fields(point):
        if number == 3:
            [time] = _UINT64(_bytes(value))
        elif number == 4:
            [measured] = _DOUBLE(_bytes(value))
        elif number == 6:
            [measured] = _INT64(_bytes(value))
    return MetricPoint(
        name=name,
        kind=kind,
        value=_finite(measured),
        unit=unit,
        time_ms=time // _NANOS,
        attributes=_attributes(point, 7),
    )


def _histogram_point(point: memoryview, name: str, kind: MetricKind, unit: str) -> MetricPoint:
    count = time = 0
    total = 0.0
    for number, value in _fields(point):
        if number == 3:
            [time] = _UINT64(_bytes(value))
        elif number == 4:
            [count] = _UINT64(_bytes(value))
        elif number == 5:
            [total] = _DOUBLE(_bytes(value))
    return MetricPoint(
        name=name,
        kind=kind,
        value=_finite(total),
        count=count,
        unit=unit,
        time_ms=time // _NANOS,
        attributes=_attributes(point, 9),
    )


def _attributes(data: memoryview, wanted: int) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for pair in _messages(data, wanted):
        key, attribute = "", None
        for number, value in _fields(pair):
            if number == 1:
                key = _text(value)
            elif number == 2:
                attribute = _any(_bytes(value))
        if attribute is not None:
            found[key] = attribute
            _check(len(found), MOST_ATTRIBUTES, "attributes of one point or resource")
    return found


def _any(data: memoryview) -> Attribute | None:
    for number, value in _fields(data):
        if number == 1:
            return _text(value)
        if number in (2, 3):
            if not isinstance(value, int):
                raise MalformedMetrics("bytes where a number should be")
            signed = value - (1 << 64) if value >= 1 << 63 else value
            return bool(value) if number == 2 else signed
        if number == 4:
            return _finite(_DOUBLE(_bytes(value))[0])
    return None


def _bytes(value: _Value) -> memoryview:
    if isinstance(value, int):
        raise MalformedMetrics("a number where bytes should be")
    return value


def _text(value: _Value) -> str:
    return bytes(_bytes(value)[: 4 * _LONGEST_TEXT]).decode("utf-8", "replace")[:_LONGEST_TEXT]


def _finite(value: float) -> float:
    """JSON has only finite numbers."""
    return value if abs(value) < float("inf") else 0
