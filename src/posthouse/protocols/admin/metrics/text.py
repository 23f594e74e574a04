"""Samples in Prometheus' text format, piece by piece.

prometheus_client's own `generate_latest` makes one text of everything, and takes 7 µs for a sample. A broker
with thousands of queues may be scraped every second, so the lines of a block of labels are written once, as a
template with a place for each value. Filling in the values takes 0.1 µs for a sample, and is left out if no
value of the block has changed since the last scrape. A test lets prometheus_client's parser read both.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Final
from weakref import WeakKeyDictionary

from posthouse.model.histogram import Histogram
from posthouse.protocols.admin.metrics.family import Family, MetricKind
from posthouse.protocols.admin.metrics.samples import FamilySamples, LabelBlock, Labels, Samples, Value

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PIECE_BYTES: Final = 128 * 1024
_KEPT_BLOCKS: Final = 40
"""Blocks whose lines are kept, up to 1 MB each. Only a very high `metrics_max_objects` makes more of them."""


class _Lines:
    """The lines of one block and family."""

    __slots__ = ("_numbers", "_template", "_text")

    def __init__(self, template: str) -> None:
        self._template = template
        self._numbers: tuple[object, ...] = ()
        self._text = b""

    def text(self, numbers: tuple[object, ...]) -> bytes:
        if numbers != self._numbers:
            self._text = (self._template % numbers).encode()
            self._numbers = numbers
        return self._text


class PrometheusText:
    """The text of one collector's samples. It keeps the lines of the blocks that still exist."""

    def __init__(self) -> None:
        self._lines = WeakKeyDictionary[LabelBlock, dict[Family, _Lines]]()

    async def render(self, parts: AsyncIterable[Samples]) -> AsyncIterator[bytes]:
        """Each part is sent before the next one is collected. No family may be in two of them."""
        async for samples in parts:
            pieces: list[bytes] = []
            size = 0
            for family, found in samples:
                pieces.append(head(family).encode())
                for text in self._texts(family, found):
                    pieces.append(text)
                    size += len(text)
                    await samples.turns.next()
                    if size >= _PIECE_BYTES:
                        yield b"".join(pieces)
                        pieces, size = [], 0
            yield b"".join(pieces)

    def _texts(self, family: Family, samples: FamilySamples) -> Iterator[bytes]:
        for block, values in samples.blocks:
            by_family = self._lines.get(block)
            if by_family is None:
                by_family = {}
                if len(self._lines) < _KEPT_BLOCKS:
                    self._lines[block] = by_family
            lines = by_family.get(family)
            if lines is None:
                lines = by_family[family] = _Lines(_template(family, block.labels, values))
            yield lines.text(_numbers(family, values))
        for labels, value in samples.singles:
            yield _Lines(_template(family, (labels,), (value,))).text(_numbers(family, (value,)))


def head(family: Family) -> str:
    meaning = family.meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {family.name} {meaning}\n# TYPE {family.name} {family.kind}\n"


def _template(family: Family, all_labels: Iterable[Labels], values: Iterable[Value]) -> str:
    """The lines of some samples, with `%s` in the place of each number. Of histograms only the bounds matter,
    which never change."""
    name = family.name
    lines: list[str] = []
    for labels, value in zip(all_labels, values, strict=True):
        shown = ",".join(map(_label, family.labels, labels)).replace("%", "%%")
        if isinstance(value, Histogram):
            lines += _histogram_lines(name, shown, value.bounds)
        elif shown:
            lines.append(f"{name}{{{shown}}} %s\n")
        else:
            lines.append(f"{name} %s\n")
    return "".join(lines)


def _numbers(family: Family, values: tuple[Value, ...]) -> tuple[object, ...]:
    """What the template of these values has places for."""
    if family.kind is not MetricKind.HISTOGRAM:
        return values
    numbers: list[float] = []
    for value in values:
        assert isinstance(value, Histogram)
        counts = value.cumulative()
        numbers += (*counts, counts[-1], value.sum)
    return tuple(numbers)


def _label(name: str, value: str) -> str:
    if "\\" in value or "\n" in value or '"' in value:
        value = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{value}"'


def _histogram_lines(name: str, shown: str, bounds: Iterable[float]) -> list[str]:
    before = f"{shown}," if shown else ""
    around = f"{{{shown}}}" if shown else ""
    return [
        *(f'{name}_bucket{{{before}le="{bound}"}} %s\n' for bound in (*map(float, bounds), "+Inf")),
        f"{name}_count{around} %s\n",
        f"{name}_sum{around} %s\n",
    ]
