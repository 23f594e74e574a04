"""Rows of labels and values, in one collection after the other."""

from collections.abc import AsyncIterator

import pytest

from posthouse.model.histogram import Histogram
from posthouse.protocols.admin.metrics import table as table_module
from posthouse.protocols.admin.metrics.family import counter, gauge, histogram
from posthouse.protocols.admin.metrics.samples import LabelBlock, Samples
from posthouse.protocols.admin.metrics.table import Rows, Table
from posthouse.protocols.admin.metrics.text import PrometheusText
from tests.protocols.admin.metrics.scraping import Scrape, parsed

SIZE = gauge("size", "Size.", "key")
SEEN = counter("seen_total", "Seen.", "key")
TOOK = histogram("took_seconds", "Took.", "key")


async def filled(table: Table, rows: dict[str, tuple[int, int]]) -> Samples:
    samples, filling = Samples(), Rows()
    for name, values in rows.items():
        filling.add((name,), *values)
    await table.fill(samples, filling)
    return samples


async def shown(text: PrometheusText, samples: Samples) -> Scrape:
    async def one() -> AsyncIterator[Samples]:
        yield samples

    return parsed("".join([piece.decode() async for piece in text.render(one())]))


def blocks(samples: Samples) -> list[LabelBlock]:
    [(_, first), _] = samples
    return [block for block, _ in first.blocks]


async def test_both_renderings_have_the_same_numbers() -> None:
    table, text = Table(SIZE, SEEN), PrometheusText()
    many = {f"name-{number}": (number, number * 2) for number in range(1234)}
    samples = await filled(table, many)
    found = await shown(text, samples)
    for family, values in samples:
        pairs = list(values)
        assert len(pairs) == len(many)
        for labels, value in pairs:
            assert found.value(family.name, key=labels[0]) == value
    assert found.value("size", key="name-7") == 7
    assert found.value("seen_total", key="name-1200") == 2400


async def test_values_change_under_the_same_labels() -> None:
    table, text = Table(SIZE, SEEN), PrometheusText()
    first = await filled(table, {"a": (1, 2), "b": (3, 4)})
    assert (await shown(text, first)).value("size", key="b") == 3
    second = await filled(table, {"a": (5, 6), "b": (7, 8)})
    assert blocks(first) == blocks(second), "labels are written once"
    found = await shown(text, second)
    assert (found.value("size", key="b"), found.value("seen_total", key="a")) == (7, 6)


async def test_objects_come_and_go() -> None:
    table, text = Table(SIZE, SEEN), PrometheusText()
    many = {f"name-{number}": (number, 0) for number in range(1200)}
    first = await filled(table, many)
    del many["name-600"]
    many["new"] = (-1, 0)
    second = await filled(table, many)
    same = [before is after for before, after in zip(blocks(first), blocks(second), strict=True)]
    assert same == [True, False, False]
    found = await shown(text, second)
    assert found.labels("size", "key") == set(many)
    assert all(found.value("size", key=name) == value for name, (value, _) in many.items())
    assert not list(await filled(table, {})), "no objects, no family"


async def test_lines_of_a_limited_number_of_objects_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "_BLOCK_ROWS", 5)
    table, text = Table(SIZE, SEEN), PrometheusText()
    many = {f"name-{number}": (number, 0) for number in range(250)}
    for _ in range(2):
        found = await shown(text, await filled(table, many))
        assert (found.value("size", key="name-7"), found.value("size", key="name-249")) == (7, 249)
    assert len(text._lines) == 40
    await filled(table, {})
    assert not text._lines, "what is gone is forgotten"


async def test_rows_of_histograms() -> None:
    table, text = Table(TOOK), PrometheusText()
    for times in (1, 2):
        samples, rows = Samples(), Rows()
        took = Histogram((0.5, 1))
        for _ in range(times):
            took.observe(0.75)
        rows.add(("50 %",), took)
        await table.fill(samples, rows)
        found = await shown(text, samples)
        assert found.value("took_seconds_bucket", key="50 %", le="0.5") == 0
        assert found.value("took_seconds_bucket", key="50 %", le="1.0") == times
        assert found.value("took_seconds_count", key="50 %") == times
        assert found.value("took_seconds_sum", key="50 %") == 0.75 * times
