"""Figures of docs/cluster-operations.md are those of docs/benchmarks-cluster.md, which a benchmark writes."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from posthouse.settings import Settings

DOCS = Path(__file__).parent.parent / "docs"
OPERATIONS = " ".join((DOCS / "cluster-operations.md").read_text().split())
INLINE = "16 KB batches, inline"
MORE_CORES = "What more cores bring to producers, "
CONNECTION = "Cost of a client's connection"
MANY = "10,000 groups, 100,000 partitions, 20,000 connections"
_MIB_OF_CACHES = 256
_UNITS = {"MB": 1.0, "GB": 1000.0, "": 1.0}
_COSTS = (
    "Costs of a GB, latency=inline, 16 KB batches, one at a time",
    "Costs of a GB, latency=inline, 16 KB batches, at full load",
    "Costs of a GB, latency=object, 1 MB batches, at full load",
)
_COST_ROWS = {
    "stored: PUT requests": "stored: PUT requests",
    "stored: uploaded": "stored: uploaded",
    "stored: GET requests": "stored: GET requests",
    "stored: downloaded": "stored: downloaded",
    "stored: transactions of the database": "stored: transactions of the database",
    "stored: PostgreSQL's log": "stored: written into PostgreSQL's log",
    "read as history: GET requests": "read as history: GET requests",
    "read as history: downloaded": "read as history: downloaded",
    "read as history: transactions of the database": "read as history: transactions of the database",
}


def _measured() -> Mapping[str, Mapping[str, float]]:
    """Medians by the heading of their table and the name of their row."""
    found: dict[str, dict[str, float]] = {}
    section = ""
    for line in (DOCS / "benchmarks-cluster.md").read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif match := re.match(r"\| ([^|]+) \| ([\d,.]+) ", line):
            found.setdefault(section, {}).setdefault(match[1], _number(match[2]))
    return found


def _number(text: str) -> float:
    return float(text.replace(",", ""))


MEASURED = _measured()


def _is_rounded(stated: str, measured: float) -> bool:
    """Within 5 %, or half of the last digit that is stated."""
    digits = len(stated.partition(".")[2])
    return abs(_number(stated) - measured) <= max(0.05 * measured, 0.5 / 10.0**digits)


@pytest.mark.parametrize(
    ("sentence", "section", "row"),
    [
        (r"takes about ([\d,]+) MB/s from producers in batches of 16 KB", MORE_CORES + INLINE, "brokers"),
        (r"and ([\d,]+) MB/s in batches of 1 MB", MORE_CORES + "1 MB batches, object", "brokers"),
        (r"core of PostgreSQL takes about ([\d,]+) MB/s", MORE_CORES + INLINE, "PostgreSQL"),
    ],
)
def test_what_a_core_is_enough_for(sentence: str, section: str, row: str) -> None:
    _check(sentence, MEASURED[section][f"one core of {row} is enough for"])


@pytest.mark.parametrize(
    ("sentence", "row"),
    [
        (r"An idle Kafka connection costs ([\d.]+) KiB", "Kafka"),
        (r"one that waits for records ([\d.]+) KiB", "Kafka, waiting for records"),
        (r"one of AMQP ([\d.]+) KiB", "AMQP, at the broker of their virtual host"),
        (r"at the broker that passes it on ([\d.]+) KiB", "AMQP, at another broker"),
    ],
)
def test_what_a_connection_costs(sentence: str, row: str) -> None:
    _check(sentence, MEASURED[CONNECTION][f"{row}: memory"])


def test_memory_of_many_things() -> None:
    _check(r"100,000 partitions take (\d+) MiB in all", MEASURED["100,000 partitions"]["memory"])
    most = max(MEASURED[MANY][f"broker {name}: memory"] for name in "abc")
    _check(r"20,000 connections (\d+) MiB", most)


def test_the_default_of_the_caches() -> None:
    assert Settings().cache_bytes == _MIB_OF_CACHES * 1024**2
    for page in ("cluster-operations.md", "benchmarks-cluster.md"):
        assert f"`cache_bytes` ({_MIB_OF_CACHES} MiB unless it is set)" in (DOCS / page).read_text()


def test_what_three_brokers_take_of_the_database() -> None:
    assert "three brokers need a fifth to a third more for each MB" in OPERATIONS
    for batches in (INLINE, "1 MB batches, object"):
        cpu = MEASURED[f"Produce with several brokers, CPU, {batches}"]
        assert 1.15 <= cpu["3 brokers: PostgreSQL"] / cpu["1 broker: PostgreSQL"] <= 1.38


@pytest.mark.parametrize("row", _COST_ROWS)
def test_what_a_gigabyte_costs(row: str) -> None:
    match = re.search(rf"\| {re.escape(row)} \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", OPERATIONS)
    assert match, f"docs/cluster-operations.md has no row {row!r}"
    for stated, section in zip(match.groups(), _COSTS, strict=True):
        number, _, unit = stated.partition(" ")
        measured = MEASURED[section][_COST_ROWS[row]] / _UNITS[unit]
        assert _is_rounded(number, measured), f"{row}: {stated} is stated, {measured:g} was measured"


def test_cpu_of_brokers_for_history() -> None:
    match = re.search(
        r"less than ([\d.]+) s of their CPU for a GB, instead of ([\d.]+) to ([\d.]+) s", OPERATIONS
    )
    assert match, "docs/cluster-operations.md does not say what history costs"
    tables = [
        table for name, table in MEASURED.items() if name.startswith("CPU of brokers while Spark reads")
    ]
    assert max(each["signed addresses"] for each in tables) < _number(match[1])
    through_brokers = [each["broker"] for each in tables]
    assert _is_rounded(match[2], min(through_brokers))
    assert _is_rounded(match[3], max(through_brokers))


def _check(sentence: str, measured: float) -> None:
    match = re.search(sentence, OPERATIONS)
    assert match, f"docs/cluster-operations.md does not say {sentence}"
    assert _is_rounded(match[1], measured), f"{match[0]!r}, but {measured:g} was measured"
