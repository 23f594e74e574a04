"""The scenarios of the shared storage, in tiny volumes: their rows are there, and the page shows them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bench.cluster import database_use, failover, report
from bench.cluster.contenders import CONTENDERS, OBJECT_STANDBY
from bench.cluster.contest import contest
from bench.cluster.history import history
from bench.cluster.partitions import partitions
from bench.cluster.plan import Plan, Stage
from bench.cluster.servers import Servers, running_servers
from bench.queues.display import Display
from bench.scale.report import Chapter, Circumstances
from tests.directories import IN_MEMORY
from tests.postgres import cluster_only, need_postgres

pytestmark = cluster_only

TINY = Plan(seconds=0.1, rounds=1, partitions=1200, history_bytes=2_000_000)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    need_postgres()
    with (
        tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-bench-") as directory,
        running_servers(Path(directory)) as running,
    ):
        yield running


@pytest.fixture
def stage(servers: Servers) -> Stage:
    return Stage(TINY, Display(Console(quiet=True)), servers)


def test_every_figure_of_every_contender(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_use, "_FLUSHED_SECONDS", 0.0)
    rows = list(contest(stage))
    sections = list(dict.fromkeys(row.section for row in rows))
    assert len(sections) == 16
    compared = [row for row in rows if row.unit in ("MB/s", "ms")]
    assert len(compared) == 10 * len(CONTENDERS)
    assert len(rows) == len(compared) + 6 * (len(CONTENDERS) - 1)
    assert all(row.spread.middle > 0 for row in compared)
    assert all((row.ratio is None) == (row.name == "local") for row in compared)
    circumstances = Circumstances(command="c", commit="abc", is_trial=True, is_complete=True)
    page = report.page([Chapter("How.", rows)], circumstances, "a directory")
    assert "Objects are in a directory; " in page
    assert "| object, synchronous standby | " in page
    assert " × local | ≥ 0.6 × local: " in page


def test_a_killed_holder_is_replaced(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "MEASURED", (OBJECT_STANDBY,))
    [row] = failover.failover(stage)
    assert row.name == OBJECT_STANDBY.name
    assert 0 < row.spread.middle < 60


def test_many_partitions(stage: Stage) -> None:
    rows = list(partitions(stage))
    assert [row.name for row in rows] == [
        "made",
        "memory",
        "start after a stop",
        "memory after the start",
        "failover",
    ]
    assert all(row.spread.middle > 0 for row in rows)


@pytest.mark.timeout(600)
def test_history_for_spark(stage: Stage) -> None:
    pytest.importorskip("pyspark", reason="needs the extra 'spark'")
    if stage.servers.store is None:
        pytest.skip("there is no S3 server")
    rows = list(history(stage))
    rates = [row for row in rows if row.unit == "MB/s"]
    assert [row.name for row in rates] == ["signed addresses", "own credentials", "broker"] * 2
    assert all(row.spread.middle > 0 for row in rates)
    assert [row.yardstick_name for row in rates if row.yardstick] == ["broker"] * 4
    assert len([row for row in rows if row.unit == "s/GB"]) == 6
