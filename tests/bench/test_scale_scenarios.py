"""Every scenario of scale, in tiny volumes: its rows are there, and nothing is left behind."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bench.queues.display import Display
from bench.scale.figures import Row, Verdict
from bench.scale.history import history
from bench.scale.idle import idle
from bench.scale.overload import overload
from bench.scale.plan import Plan, Stage
from bench.scale.topics import topics

TINY = Plan(connections=20, topics=700, records=200_000, rounds=1, seconds=0.4)


@pytest.mark.parametrize(
    ("scenario", "count"),
    [(idle, 21), (topics, 14), (history, 13), pytest.param(overload, 38, marks=pytest.mark.long)],
)
def test_a_scenario_has_its_rows(
    scenario: Callable[[Stage], Iterator[Row]],
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(scenario(Stage(TINY, Display(Console(quiet=True)))))
    assert len(rows) == count
    assert all(value >= 0 for row in rows for value in row.rounds if row.unit != "MiB")
    must_be = [verdict for row in rows if row.exactly is not None for _, verdict in row.aims()]
    assert all(verdict is Verdict.REACHED for verdict in must_be)
    assert list(tmp_path.glob(".bench/*")) == []
