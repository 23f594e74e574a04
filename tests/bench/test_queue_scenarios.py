"""Every scenario, in tiny volumes, with Posthouse alone: its rows are there, and nothing is left behind."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bench.queues.backlog import backlog
from bench.queues.contests import Plan, Stage
from bench.queues.display import Display
from bench.queues.enqueueing import SINK, enqueueing
from bench.queues.fan_out import fan_out
from bench.queues.figures import Row
from bench.queues.floor import DISK, floor
from bench.queues.latency import latency
from bench.queues.many_queues import many_queues
from bench.queues.peers import AMQP_PEERS, POSTHOUSE

TINY = Plan(
    messages=1000,
    sizes=(128,),
    rounds=1,
    seconds=0.3,
    backlog=3000,
    queues=5,
    peers=AMQP_PEERS[:1],
    backlog_peers=AMQP_PEERS[:1],
    redis_peers=(),
)


@pytest.mark.parametrize(
    ("scenario", "count", "peers"),
    [
        (floor, 6, {DISK}),
        (enqueueing, 4, {POSTHOUSE, SINK}),
        (fan_out, 6, {POSTHOUSE}),
        (latency, 9, {POSTHOUSE}),
        (backlog, 6, {POSTHOUSE}),
        (many_queues, 4, {POSTHOUSE}),
    ],
)
def test_a_scenario_has_its_rows(
    scenario: Callable[[Stage], Iterator[Row]],
    count: int,
    peers: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(scenario(Stage(TINY, Display(Console(quiet=True)))))
    assert len(rows) == count
    for row in rows:
        assert not row.missing
        assert set(row.rounds) <= peers
        assert all(value >= 0 for values in row.rounds.values() for value in values)
    assert set().union(*(row.rounds for row in rows)) == peers
    assert list(tmp_path.glob(".bench/*")) == []
