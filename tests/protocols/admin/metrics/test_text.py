"""The text format, beside that of prometheus_client."""

from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client import Histogram as TheirHistogram

from posthouse.model.histogram import Histogram
from posthouse.protocols.admin.metrics.family import counter, gauge, histogram
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.text import PrometheusText
from tests.protocols.admin.metrics.scraping import parsed


async def one(samples: Samples) -> AsyncIterator[Samples]:
    yield samples


BOUNDS = (0.5, 1.0, 2.5)
NAMES = ("plain", 'a "quoted" one', "back\\slash", "two\nlines", "größe", "100 %", "%s", "")


async def test_the_parser_reads_our_text_as_theirs() -> None:
    registry = CollectorRegistry()
    their_counter = Counter("seen_total", "Seen \\ so\nfar.", ["name"], registry=registry)
    their_gauge = Gauge("size", "Size.", registry=registry)
    their_histogram = TheirHistogram("took_seconds", "Took.", ["name"], buckets=BOUNDS, registry=registry)
    samples = Samples()
    seen = counter("seen_total", "Seen \\ so\nfar.", "name")
    took = histogram("took_seconds", "Took.", "name")
    for number, name in enumerate(NAMES):
        their_counter.labels(name).inc(number * 10**15)
        samples.add(seen, number * 10**15, name)
        times = Histogram(BOUNDS)
        for value in (0.1, 0.5, 2.0, 7.25):
            their_histogram.labels(name).observe(value)
            times.observe(value)
        samples.add(took, times, name)
    their_gauge.set(0.1 + 0.2)
    samples.add(gauge("size", "Size."), 0.1 + 0.2)
    ours = parsed("".join([piece.decode() async for piece in PrometheusText().render(one(samples))]))
    theirs = parsed(generate_latest(registry).decode())
    created = {key for key in theirs.values if key[0].endswith("_created")}
    assert ours.values == {key: value for key, value in theirs.values.items() if key not in created}
    assert ours.kinds.items() <= theirs.kinds.items()
    assert "# HELP seen_total Seen \\\\ so\\nfar.\n" in ours.text


async def test_many_samples_come_in_pieces() -> None:
    samples = Samples()
    many = gauge("many", "Many.", "number")
    names = [f"{number:0200}" for number in range(5000)]
    for number, name in enumerate(names):
        samples.add(many, number, name)
    pieces = [piece async for piece in PrometheusText().render(one(samples))]
    assert len(pieces) > 5
    found = parsed(b"".join(pieces).decode())
    assert all(found.value("many", number=name) == number for number, name in enumerate(names))
