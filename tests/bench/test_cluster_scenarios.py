"""The scenarios of the shared storage, in tiny volumes: their rows are there, and the page shows them."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.cluster import (
    brokers,
    connections,
    costs,
    database_use,
    failover,
    history_reads,
    moves,
    moving,
    report,
)
from bench.cluster.contenders import CONTENDERS, INLINE, OBJECT, OBJECT_STANDBY
from bench.cluster.contest import contest
from bench.cluster.cpu import Kind
from bench.cluster.history import history
from bench.cluster.many import many
from bench.cluster.partitions import partitions
from bench.cluster.plan import Plan, Stage
from bench.cluster.servers import Servers, running_servers
from bench.queues.display import Display
from bench.scale import idle
from bench.scale.figures import Row
from bench.scale.report import Chapter, Circumstances
from tests.directories import IN_MEMORY
from tests.postgres import cluster_only, need_postgres
from tests.torture.network.namespaces import why_not

pytestmark = cluster_only

TINY = Plan(
    seconds=0.1,
    rounds=1,
    partitions=1200,
    history_bytes=2_000_000,
    groups=30,
    connections=90,
    idle_connections=20,
)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    need_postgres()
    with (
        tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-bench-") as directory,
        running_servers(Path(directory), recycled_bytes=0) as running,
    ):
        yield running


@pytest.fixture
def stage(servers: Servers) -> Stage:
    return Stage(TINY, Display(Console(quiet=True)), servers)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_use, "_FLUSHED_SECONDS", 0.0)


def sections(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.section for row in rows))


def test_every_figure_of_every_contender(stage: Stage) -> None:
    rows = list(contest(stage))
    limits = [row for row in rows if "alone" in row.section or "allows" in row.section]
    figures = [row for row in rows if row not in limits]
    assert len(sections(figures)) == 16
    compared = [row for row in figures if row.unit in ("MB/s", "ms")]
    assert len(compared) == 10 * len(CONTENDERS)
    assert len(figures) == len(compared) + 6 * (len(CONTENDERS) - 1)
    assert all(row.spread.middle > 0 for row in compared)
    assert all((row.ratio is None) == (row.name == "local") for row in compared)
    assert len(sections(limits)) == 3
    beside = [row for row in limits if row.yardstick]
    assert len(beside) == 2 * (3 + 4), "the object store alone, and busy cores; local has no object store"
    circumstances = Circumstances(command="c", commit="abc", is_trial=True, is_complete=True)
    page = report.page([Chapter("How.", rows)], circumstances, "a directory")
    assert "Objects are in a directory; " in page
    assert "| object, synchronous standby | " in page
    assert " × local | ≥ 0.6 × local: " in page
    assert " × busy cores |" in page


def test_several_brokers(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for CPU time that can be seen.
    stage = Stage(replace(TINY, seconds=0.5), Display(Console(quiet=True)), servers)
    load = brokers.Load(name="16 KB batches, inline", batch_bytes=16_000, contender=INLINE)
    monkeypatch.setattr(brokers, "LOADS", (load,))
    rows = list(brokers.brokers(stage))
    assert len(sections(rows)) == 6
    rates = [row for row in rows if row.name in ("1 broker", "2 brokers", "3 brokers") and row.unit == "MB/s"]
    assert len(rates) == 6
    assert [bool(row.aims()) for row in rates] == [False, False, True] * 2, "three are compared with one"
    costs = [row for row in rows if row.unit == "ms per MB"]
    assert len(costs) == 2 * 3 * len(Kind)
    assert all(row.spread.middle > 0 for row in costs if str(Kind.CLIENTS) in row.name)
    assert len([row for row in rows if row.unit == "transactions per MB"]) == 3
    assert len([row for row in rows if row.unit == "%" and row.aims()]) == 2, "predictions are checked"


def test_what_a_gigabyte_costs(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """In requests and bytes, until it is consolidated and when it is read again."""
    stage = Stage(replace(TINY, seconds=0.5), Display(Console(quiet=True)), servers)
    rows = list(costs.costs(stage))
    assert len(sections(rows)) == len(costs.LOADS)
    for load in costs.LOADS:
        of_load = {row.name: row.spread.middle for row in rows if row.section.endswith(load.name)}
        assert len(of_load) == 2 * 6
        is_large = load.contender is OBJECT
        # Segments have all bytes once; what is too large for the database was uploaded before.
        assert of_load["stored: uploaded"] >= (1900 if is_large else 950)
        assert of_load["stored: PUT requests"] > 0
        assert of_load["read as history: downloaded"] >= 950, "from objects alone"
        assert of_load["read as history: uploaded"] == 0
        assert of_load["stored: transactions of the database"] > 0
        if load.one_at_a_time:
            assert of_load["stored: downloaded"] == 0, "the database has it"
            assert of_load["stored: written into PostgreSQL's log"] >= 950


def test_requests_are_those_of_the_metrics() -> None:
    lines = [
        "# HELP posthouse_object_bytes_total Bytes.",
        'posthouse_object_bytes_total{operation="put"} 700',
        'posthouse_object_bytes_total{operation="read"} 60',
        'posthouse_object_call_duration_seconds_bucket{operation="put",le="0.1"} 9',
        'posthouse_object_call_duration_seconds_count{operation="put"} 5',
        'posthouse_object_call_duration_seconds_count{operation="read"} 4',
    ]
    found = costs.requests_in(lines)
    assert found == costs.Requests(puts=5, put_bytes=700, gets=4, got_bytes=60)
    assert found.plus(found, -1) == costs.Requests(puts=0, put_bytes=0, gets=0, got_bytes=0)


def test_the_cost_of_a_connection(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_ANYWHERE", (idle.KAFKA,))
    rows = list(connections.connections(stage))
    assert [row.name for row in rows if row.unit == "KiB"] == [
        "Kafka: memory",
        "AMQP, at the broker of their virtual host: memory",
        "AMQP, at another broker: memory",
        "AMQP, at another broker: memory of the broker of the virtual host",
    ]
    assert len(rows) == 8


def test_a_killed_coordinator_is_replaced(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "MEASURED", (OBJECT_STANDBY,))
    produce, commit = failover.failover(stage)
    assert 0 < produce.spread.middle < commit.spread.middle < 60


def test_clients_while_brokers_change(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_SETTLED_SECONDS", 0.2)
    monkeypatch.setattr(moves, "_SETTLED_SECONDS", 0.2)
    first = [each for each in moves.SEQUENCES[0] if each.run is not moves.kill]
    monkeypatch.setattr(moving, "SEQUENCES", [first])
    rows = list(moving.moving(stage))
    found = sections(rows)
    assert len(found) == 6
    assert found[0] == "Nothing moves"
    assert "While a broker changes: cluster move of a scope of namespaces" in found
    assert "While a broker changes: cluster move of a scope of transactional ids" in found
    assert found[-1] == "While a broker changes: stop of the coordinator of a group"
    for section in found[1:]:
        of_move = {row.name: row for row in rows if row.section == section}
        for one in ("an offset commit", "a message through a queue", "a transaction"):
            assert of_move[f"longest wait of {one}"].spread.middle > 0
        assert of_move["produce, p99"].spread.middle >= of_move["produce, p50"].spread.middle > 0
        assert of_move["offset commits, p99"].spread.middle > 0


def test_many_partitions(stage: Stage) -> None:
    rows = list(partitions(stage))
    assert [row.name for row in rows] == [
        "made",
        "memory",
        "start after a stop",
        "memory after the start",
        "failover, until a produce",
        "failover, until an offset commit",
    ]
    assert all(row.spread.middle > 0 for row in rows)
    assert len([row for row in rows if row.aims()]) == 5


def test_many_of_everything(stage: Stage) -> None:
    rows = list(many(stage))
    names = [row.name for row in rows]
    assert sum(row.spread.middle for row in rows if row.name.endswith("connections")) == TINY.connections
    for broker in "abc":
        for figure in ("memory", "start", "memory after the start"):
            [row] = [row for row in rows if row.name == f"broker {broker}: {figure}"]
            assert row.spread.middle > 0 and row.aims()
    assert names[0] == "groups made"


@pytest.mark.timeout(600)
def test_history_for_spark(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_reads, "_IDLE_SECONDS", 0.2)
    pytest.importorskip("pyspark", reason="needs the extra 'spark'")
    if stage.servers.store is None:
        pytest.skip("there is no S3 server")
    if (reason := why_not()) is not None:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    rows = list(history(stage))
    rates = [row for row in rows if row.unit == "MB/s"]
    places = 3 * 2  # on three kinds of Spark, each with two topics
    assert [row.name for row in rates] == ["signed addresses", "own credentials", "broker"] * places
    assert all(row.spread.middle > 0 for row in rates)
    assert [row.yardstick_name for row in rates if row.yardstick] == ["broker"] * 2 * places
    assert len([row for row in rates if row.aims()]) == places, "not slower than from a broker"
    costs = [row for row in rows if row.unit == "s/GB"]
    assert [bool(row.aims()) for row in costs] == [True, True, False] * places, "history costs brokers no CPU"
    assert len(sections(rows)) == 2 * places
