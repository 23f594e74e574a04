"""Executors read objects: the same rows as from a broker, whatever happens to the objects."""

import logging
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.client.ranges import RangeReading
from posthouse.spark.errors import WrongOption
from posthouse.spark.live import LivePiece
from posthouse.spark.segments import signed_objects
from posthouse.testing import running_broker
from tests.spark.segments.clusters import Cluster
from tests.spark.segments.queries import Query, Row, fill, rows_of

ROWS = 3000
SEGMENT_BYTES = 100_000

BrokerReads = list[tuple[int, int]]


@pytest.fixture
def broker_reads(monkeypatch: pytest.MonkeyPatch) -> BrokerReads:
    """The ranges of offsets that are read from a broker."""
    asked: BrokerReads = []
    inner = RangeReading.__init__

    def note(self: RangeReading, *arguments: object, **options: object) -> None:
        asked.append((arguments[3], arguments[4]))  # type: ignore[arg-type]
        inner(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(RangeReading, "__init__", note)
    monkeypatch.setattr(signed_objects, "_PAUSES", (0.0, 0.0))
    return asked


@pytest.fixture
def expected(cluster: Cluster, client: Client) -> list[Row]:
    """The rows of a topic that is in several segments, each in an object of its own."""
    client.create_topic("orders", partitions=1)
    rows = []
    for number in range(3):
        rows += fill(client, ROWS // 3, number * ROWS // 3)
        cluster.consolidate(segment_bytes=SEGMENT_BYTES)
    return rows


def objects_of(query: Query) -> list[str]:
    """Their keys, by offset."""
    [piece] = query.pieces
    assert isinstance(piece, LivePiece) and piece.objects is not None
    addresses = [each.address.partition("?")[0] for each in piece.objects.segments]
    return list(dict.fromkeys(each.split("/", 3)[3] for each in addresses))


def test_history_comes_from_objects_and_the_tail_from_the_broker(
    cluster: Cluster, client: Client, expected: list[Row], broker_reads: BrokerReads
) -> None:
    query = Query(cluster)
    assert len(objects_of(query)) == 3
    assert query.rows() == expected
    assert broker_reads == []
    expected += fill(client, 10, ROWS)
    assert rows_of(cluster) == expected
    assert broker_reads == [(ROWS, ROWS + 10)]


def test_tasks_read_only_their_part_of_a_segment(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads
) -> None:
    query = Query(cluster, minPartitions="20")
    assert len(query.pieces) == 20
    assert query.rows() == expected
    assert broker_reads == []
    stored = sum(each.stat().st_size for each in cluster.objects.directory.rglob("*") if each.is_file())
    # A batch and the entries of the index are 4 KB; each task may read some of its neighbours' bytes.
    assert cluster.objects.bytes_sent < stored + 20 * 2 * 5000


def test_a_range_in_the_middle(cluster: Cluster, expected: list[Row], broker_reads: BrokerReads) -> None:
    options = {"startingOffsets": '{"orders": {"0": 777}}', "endingOffsets": '{"orders": {"0": 2222}}'}
    assert rows_of(cluster, **options) == expected[777:2222]
    assert broker_reads == []


def test_switched_off(cluster: Cluster, expected: list[Row], broker_reads: BrokerReads) -> None:
    assert rows_of(cluster, readObjects="false") == expected
    assert cluster.objects.gets == []
    assert broker_reads == [(0, ROWS)]


def test_with_credentials_of_our_own(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads
) -> None:
    assert rows_of(cluster, objectStore=cluster.store, minPartitions="5") == expected
    assert cluster.objects.gets == []
    assert broker_reads == []


def test_a_store_without_the_objects(
    cluster: Cluster,
    expected: list[Row],
    broker_reads: BrokerReads,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "other").mkdir()
    assert rows_of(cluster, objectStore=f"file://{tmp_path}/other") == expected
    assert broker_reads == [(0, ROWS)]
    assert "reading from a broker instead of an object" in caplog.text
    assert "is not in" in caplog.text


@pytest.mark.parametrize("url", ["gopher://x/y", "s3://key:secret@:bad:/x", "file://relative"])
def test_an_address_that_is_none(url: str, cluster: Cluster, client: Client) -> None:
    """It fails when the query is planned, and does not show what may be a secret."""
    client.create_topic("orders", partitions=1)
    fill(client, 1)
    with pytest.raises(WrongOption, match="'objectStore' is not an address") as caught:
        Query(cluster, objectStore=url)
    assert "secret" not in str(caught.value)


def test_addresses_that_have_expired_are_signed_again(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(cluster)
    cluster.objects.generation += 1
    assert query.rows() == expected
    assert broker_reads == []
    assert caplog.records == []


def test_an_object_that_another_has_replaced(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads
) -> None:
    query = Query(cluster)
    old = objects_of(query)[1]
    (cluster.objects.directory / old).rename(cluster.objects.directory / f"{old}-moved")
    cluster.execute("UPDATE object SET key = %s WHERE key = %s", f"{old}-moved", old)
    assert query.rows() == expected
    assert broker_reads == []


def test_an_object_that_is_gone(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(cluster)
    (cluster.objects.directory / objects_of(query)[1]).unlink()
    assert query.rows() == expected
    assert broker_reads == [(ROWS // 3, ROWS)]
    assert f"topic 'orders', partition 0, offset {ROWS // 3}: reading from a broker" in caplog.text
    assert "status 404" in caplog.text
    assert "generation=" not in caplog.text, "the signature is a secret"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_object(
    number: int,
    cluster: Cluster,
    expected: list[Row],
    broker_reads: BrokerReads,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only its segments are left to the broker."""
    query = Query(cluster)
    cluster.objects.flips.add(objects_of(query)[number])
    assert query.rows() == expected
    assert broker_reads
    third = ROWS // 3
    for first, end in broker_reads:
        assert number * third <= first < end <= (number + 1) * third
    assert "instead of an object" in caplog.text
    assert {key for key, _, _ in cluster.objects.gets} == set(objects_of(query))


def test_a_store_that_is_busy_for_a_moment(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads
) -> None:
    cluster.objects.statuses += [503, 500]
    assert rows_of(cluster) == expected
    assert broker_reads == []


def test_a_store_that_stays_busy(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left alone for a minute."""
    cluster.objects.statuses += [503] * 1000
    assert rows_of(cluster) == expected
    assert broker_reads == [(0, ROWS)]
    assert "answers with status 503" in caplog.text
    asked = len(cluster.objects.statuses)
    assert rows_of(cluster) == expected
    assert len(cluster.objects.statuses) == asked
    assert len(caplog.records) == 1


@pytest.mark.parametrize("fault", ["is_cutting", "is_ignoring_ranges"])
def test_a_store_that_answers_wrongly(
    fault: str, cluster: Cluster, expected: list[Row], broker_reads: BrokerReads
) -> None:
    setattr(cluster.objects, fault, True)
    assert rows_of(cluster) == expected
    assert broker_reads == [(0, ROWS)]


def test_a_store_that_cannot_be_reached(
    cluster: Cluster, expected: list[Row], broker_reads: BrokerReads, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.objects.port = 1
    assert rows_of(cluster) == expected
    assert broker_reads == [(0, ROWS)]
    assert "http://127.0.0.1:1 does not answer" in caplog.text


def test_a_query_that_ends_early_leaves_nothing_behind(cluster: Cluster, expected: list[Row]) -> None:
    query = Query(cluster)
    rows = query.rows_of(query.pieces[0])
    assert next(rows) == expected[0]
    rows.close()  # type: ignore[attr-defined]


def test_a_broker_with_a_disk_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with running_broker() as broker, Client(broker.kafka) as client, caplog.at_level(logging.DEBUG):
        client.create_topic("orders", partitions=1)
        rows = fill(client, 10)
        for _ in range(2):
            query = Query(Cluster(broker, "", None))  # type: ignore[arg-type]
            assert [piece.objects for piece in query.pieces if isinstance(piece, LivePiece)] == [None]
            assert query.rows() == rows
    told = [each for each in caplog.records if "on its own disk" in each.message]
    assert [each.levelno for each in told] == [logging.DEBUG], "asked once, and no cause for alarm"
