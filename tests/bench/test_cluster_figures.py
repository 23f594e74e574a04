"""What `make bench-cluster` computes from its measurements, and that a missed aim is an exit status."""

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cluster import __main__ as program
from bench.cluster.clusters import Spread
from bench.cluster.cpu import CpuSeconds, Kind
from bench.cluster.group_members import by_broker, group_name
from bench.cluster.loads import Requests, rotated
from bench.cluster.model import Measured, limit, predicted
from bench.cluster.spread_loads import _parts
from bench.cluster.steady import Sample, latencies, within
from bench.cpu_times import cpu_of_tree
from bench.scale.figures import Row

COSTS = {Kind.BROKERS: 4.0, Kind.DATABASE: 1.0, Kind.OBJECTS: 2.0, Kind.CLIENTS: 1.0}


def test_one_broker_is_limited_by_its_event_loop_and_several_by_the_cores() -> None:
    assert limit(COSTS, brokers=1, cores=2) == 250, "by the cores: 8 ms of 2,000 in a second"
    assert limit(COSTS, brokers=1, cores=8) == 250, "by the broker: 4 ms of 1,000"
    assert limit(COSTS, brokers=4, cores=8) == 1000


def test_the_prediction_keeps_the_share_of_what_would_be_possible() -> None:
    one = Measured(mb_per_second=100, costs=COSTS, brokers=1, cores=2)
    assert one.share == 0.4
    assert predicted(one, brokers=1, cores=2) == 100
    assert predicted(one, brokers=3, cores=2) == 100, "the cores are the limit already"
    assert predicted(one, brokers=4, cores=8) == 400


@given(st.integers(1, 8), st.integers(1, 32), st.floats(0.1, 500))
def test_more_brokers_and_cores_are_never_predicted_to_be_slower(
    brokers: int, cores: int, rate: float
) -> None:
    one = Measured(mb_per_second=rate, costs=COSTS, brokers=1, cores=2)
    found = predicted(one, brokers=brokers, cores=cores)
    assert predicted(one, brokers=brokers + 1, cores=cores) >= found
    assert predicted(one, brokers=brokers, cores=cores + 1) >= found


def test_cpu_time_is_counted_by_kind_and_per_megabyte() -> None:
    before = CpuSeconds(dict.fromkeys(Kind, 1.0))
    after = CpuSeconds({Kind.BROKERS: 3.0, Kind.DATABASE: 1.5, Kind.OBJECTS: 1.0, Kind.CLIENTS: 1.25})
    spent = after.since(before)
    assert spent.total == 2.75
    assert spent.per(100)[Kind.BROKERS] == 20.0


def _burn(seconds: float) -> None:
    while sum(os.times()[:2]) < seconds:
        pass


def test_cpu_time_of_a_process_has_that_of_its_children() -> None:
    """Also of those that have ended: PostgreSQL has a process for each connection."""
    before = cpu_of_tree(os.getpid())
    child = multiprocessing.get_context("fork").Process(target=_burn, args=(0.1,))
    child.start()
    child.join()
    assert cpu_of_tree(os.getpid()) - before >= 0.09


@given(
    st.lists(st.integers(0, 2), max_size=60),
    st.integers(0, 60),
)
def test_connections_are_spread_as_evenly_as_members_of_groups_allow(
    coordinators: list[int], further: int
) -> None:
    groups = {group_name(number): port for number, port in enumerate(coordinators)}
    found = by_broker(groups, [0, 1, 2], len(groups) + further)
    assert sum(found.values()) == further
    members = Counter(coordinators)
    held = {port: members[port] + count for port, count in found.items()}
    filled = [held[port] for port, count in found.items() if count]
    if filled:
        assert max(filled) - min(held.values()) <= 1


def test_samples_within_a_move_are_those_that_were_under_way() -> None:
    samples = [Sample(due, seconds, 0) for due, seconds in ((1.0, 0.5), (1.0, 2.0), (2.5, 0.1), (4.0, 0.1))]
    assert within(samples, 2.0, 3.0) == samples[1:3]
    assert latencies(samples).most == 2000


def test_requests_go_round_from_another_one_for_each_client() -> None:
    assert rotated([b"a", b"b", b"c"], 4) == [b"b", b"c", b"a"]
    assert Requests(frames=[bytes(1_000_000)], records=1).window == 4
    assert Requests(frames=[bytes(100_000_000)], records=1).window == 1


def test_partitions_of_a_broker_are_divided_among_its_connections() -> None:
    assert _parts([1, 2, 3, 4, 5], 2) == [[1, 3, 5], [2, 4]]
    assert _parts([1], 2) == [[1]]
    assert Spread(topic=b"", name="t", led={1: [0, 1], 2: [2]}).partitions == 3


def rows(most: float) -> Iterator[Row]:
    yield Row(section="s", name="n", unit="ms", rounds=(10.0,), most=most)


@pytest.mark.parametrize(("most", "status"), [(11.0, 0), (10.0, 1)])
def test_a_missed_aim_is_an_exit_status(
    most: float,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def no_servers(directory: Path) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(object_store="nowhere")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "running_servers", no_servers)
    monkeypatch.setattr(program, "SCENARIOS", {"one": program.Scenario(lambda stage: rows(most), "note")})
    monkeypatch.setattr(sys, "argv", ["bench.cluster", "--only", "one"])
    assert program.main() == status
    assert ("missed: s, n: 10 ms; the aim was < 10 ms" in capsys.readouterr().out) == (status == 1)
