"""Holds of queries: objects stay while tasks read them, and go afterwards."""

import threading
import time
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.spark.live import LivePiece
from posthouse.spark.offsets import to_json
from posthouse.spark.options import parse_source
from posthouse.spark.schema import source_schema
from posthouse.spark.segments import holds
from posthouse.spark.streaming import StreamReader
from posthouse.spark.tasks import holds_of
from tests.spark.segments.clusters import Cluster
from tests.spark.segments.queries import Query, Row, fill

ROWS = 1000


@pytest.fixture
def expected(cluster: Cluster, client: Client) -> list[Row]:
    client.create_topic("orders", partitions=1)
    rows = fill(client, ROWS)
    cluster.consolidate()
    return rows


def held(cluster: Cluster) -> int:
    return int(cluster.one("SELECT count(*) FROM hold WHERE until > now()")[0])


def seconds_left(cluster: Cluster) -> float:
    return float(cluster.one("SELECT extract(epoch FROM max(until) - now()) FROM hold")[0])


def until_renewed(cluster: Cluster) -> None:
    deadline = time.monotonic() + 30
    while seconds_left(cluster) < 800 or is_renewing():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_renewing() -> bool:
    return any(each.name == "hold" for each in threading.enumerate())


def test_a_query_reads_what_retention_has_removed(
    cluster: Cluster, client: Client, expected: list[Row]
) -> None:
    """Its rows are those of the moment when it was planned."""
    query = Query(cluster)
    client.trim_topic("orders", {0: ROWS})
    cluster.remove()
    assert cluster.one("SELECT count(*) FROM segment") == (0,)
    cluster.collect_garbage()
    assert query.rows() == expected
    assert Query(cluster).rows() == []
    [hold] = holds_of(query.pieces)
    client.release_hold(hold)
    cluster.collect_garbage()
    assert cluster.one("SELECT count(*) FROM object") == (0,)


def test_tasks_renew_the_hold_of_their_query(cluster: Cluster, expected: list[Row]) -> None:
    query = Query(cluster, minPartitions="4")
    assert len(query.pieces) == 4
    assert len(holds_of(query.pieces)) == held(cluster) == 1
    cluster.execute("UPDATE hold SET until = now() + interval '50 seconds'")
    list(query.rows_of(query.pieces[0]))
    until_renewed(cluster)
    cluster.execute("UPDATE hold SET until = now() + interval '50 seconds'")
    list(query.rows_of(query.pieces[1]))
    assert not is_renewing(), "not at every task"
    for hold in holds._renewed:
        holds._renewed[hold] = time.monotonic() - 61
    list(query.rows_of(query.pieces[2]))
    until_renewed(cluster)


def test_a_hold_that_is_over_ends_no_query(
    cluster: Cluster, client: Client, expected: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(cluster)
    [hold] = holds_of(query.pieces)
    client.release_hold(hold)
    assert query.rows() == expected
    assert caplog.records == []


def test_without_room_for_a_hold(cluster: Cluster, expected: list[Row]) -> None:
    cluster.execute(
        "INSERT INTO hold SELECT gen_random_uuid(), now() + interval '1 hour', '{}' "
        "FROM generate_series(1, 10000)"
    )
    query = Query(cluster)
    [piece] = query.pieces
    assert isinstance(piece, LivePiece) and piece.objects is not None
    assert piece.objects.hold is None
    assert query.rows() == expected


def test_a_stream_holds_a_batch_until_it_is_committed(
    cluster: Cluster, client: Client, expected: list[Row]
) -> None:
    given = {"kafka.bootstrap.servers": cluster.broker.kafka, "subscribe": "orders"}
    options = parse_source(
        {**given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}, streaming=True
    )
    reader = StreamReader(options, source_schema(include_headers=False))
    start: Any = reader.initialOffset()
    offsets = [0]
    for number in range(3):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        pieces = reader.partitions(start, end)
        assert held(cluster) == (1 if number == 0 else 2)
        offsets += [
            offset
            for piece in pieces
            for batch in reader.read(piece)
            for offset in batch["offset"].to_pylist()
        ][-1:]
        if number:
            reader.commit(start)
            assert held(cluster) == 1
        start = end
    assert offsets == [0, 399, 799, 999]
    reader.stop()
    assert held(cluster) == 0


def test_a_stream_that_has_caught_up_holds_nothing(
    cluster: Cluster, client: Client, expected: list[Row]
) -> None:
    fill(client, 10, ROWS)
    options = parse_source(
        {"kafka.bootstrap.servers": cluster.broker.kafka, "subscribe": "orders"}, streaming=True
    )
    reader = StreamReader(options, source_schema(include_headers=False))
    start = to_json(dict.fromkeys(reader._survey.places(reader._topics()), ROWS))
    pieces = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert [piece.objects for piece in pieces if isinstance(piece, LivePiece)] == [None]
    assert held(cluster) == 0
    reader.stop()
