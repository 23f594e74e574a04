"""OTLP as clients write it, and as those write it who want to harm."""

import math
from random import Random

import pytest

from posthouse.broker.telemetry.points import MetricKind, MetricPoint
from posthouse.protocols.kafka.otlp import (
    MOST_ATTRIBUTES,
    MOST_ATTRIBUTES_OF_ALL,
    MOST_POINTS,
    MalformedMetrics,
    decode_metrics,
)
from tests.protocols.kafka.otlp_writer import (
    attribute,
    field,
    fixed,
    gauge,
    histogram,
    metrics,
    number,
    total,
    varint,
)


def test_all_kinds_of_points() -> None:
    resource = field(1, attribute("client_rack", field(1, "a")))
    resource += field(1, attribute("yes", number(2, 1))) + field(1, attribute("n", number(3, -4)))
    resource += field(1, attribute("list", field(5, b"")))
    data = metrics(gauge("g", 2.5, "ms"), total("s", -3), histogram("h", 4, 8.0), resource=resource)
    found = decode_metrics(data, 99)
    assert (found.time_ms, found.resource) == (99, {"client_rack": "a", "yes": True, "n": -4})
    assert found.points == (
        MetricPoint(
            name="g", kind=MetricKind.GAUGE, value=2.5, unit="ms", time_ms=7, attributes={"topic": "t"}
        ),
        MetricPoint(name="s", kind=MetricKind.SUM, value=-3),
        MetricPoint(name="h", kind=MetricKind.HISTOGRAM, value=8.0, count=4),
    )


def test_what_is_unknown_is_skipped() -> None:
    strange = number(90, 5) + fixed(91, bytes(8)) + varint(92 << 3 | 5) + bytes(4) + field(93, b"x")
    assert decode_metrics(strange + metrics(strange + gauge("g", 1.0)), 0).points[0].name == "g"
    assert decode_metrics(b"", 0).points == ()


def test_numbers_that_json_does_not_have() -> None:
    data = metrics(gauge("a", math.inf), gauge("b", math.nan), gauge("c", -math.inf))
    assert [point.value for point in decode_metrics(data, 0).points] == [0, 0, 0]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b",
        b"\xff" * 11,
        number(1, 5),
        metrics(field(5, field(1, number(4, 1)))),
        metrics(field(5, field(1, fixed(4, bytes(8))[:-1]))),
        field(1, field(1, field(1, attribute("a", field(2, b"x"))))),
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        decode_metrics(data, 0)


def test_too_many_points() -> None:
    many = metrics(field(5, field(1, b"") * (MOST_POINTS + 1)))
    with pytest.raises(MalformedMetrics, match="more than"):
        decode_metrics(many, 0)
    assert len(decode_metrics(metrics(field(5, field(1, b"") * MOST_POINTS)), 0).points) == MOST_POINTS


def attributes(place: int, count: int, prefix: str = "") -> bytes:
    return b"".join(field(place, attribute(f"{prefix}{n}", number(2, 1))) for n in range(count))


def test_too_many_attributes() -> None:
    most = metrics(
        field(5, field(1, attributes(7, MOST_ATTRIBUTES))), resource=attributes(1, MOST_ATTRIBUTES)
    )
    found = decode_metrics(most, 0)
    assert len(found.resource) == len(found.points[0].attributes) == MOST_ATTRIBUTES
    points = field(1, attributes(7, MOST_ATTRIBUTES)) * (MOST_ATTRIBUTES_OF_ALL // MOST_ATTRIBUTES + 1)
    for many in (
        metrics(resource=attributes(1, MOST_ATTRIBUTES + 1)),
        metrics(resource=attributes(1, 40, "a")) + metrics(resource=attributes(1, 40, "b")),
        metrics(field(5, field(1, attributes(7, MOST_ATTRIBUTES + 1)))),
        metrics(field(9, field(1, attributes(9, MOST_ATTRIBUTES + 1)))),
        metrics(field(5, points)),
    ):
        with pytest.raises(MalformedMetrics, match=r"more than .* attributes"):
            decode_metrics(many, 0)


def test_damage_is_told_or_read() -> None:
    whole = metrics(gauge("g", 2.5, "ms"), total("s", 3), histogram("h", 4, 8.0))
    random = Random(1)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            decode_metrics(bytes(data[: random.randint(0, len(data))]), 0)
        except MalformedMetrics:
            continue
