"""What a log is made of, and the batches of its runs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.records.batch import parse_header
from posthouse.records.references import NEVER, Reference, iter_references
from posthouse.storage.shared.reads.pieces import _PIECES_AND_ABORTED, find_pieces, read_inline
from posthouse.storage.shared.reads.runs import RunRow, batches_of
from tests.storage.batches import make_batch, values_in
from tests.storage.shared.shared_logs import SharedLogs


async def test_runs_are_found_from_every_offset(logs: SharedLogs) -> None:
    [other, log] = await logs.create(partitions=2)
    await logs.append(other, make_batch(b"other"))
    await logs.append(log, make_batch(b"0", b"1"), make_batch(b"2"))
    await logs.append(log, make_batch(b"3", b"4", b"5"), in_object=True)
    await logs.append(log, make_batch(b"6"))
    assert await logs.values(log) == {n: b"%d" % n for n in range(7)}
    for offset, base in ((0, 0), (1, 0), (2, 0), (3, 3), (5, 3), (6, 6)):
        found = await find_pieces(logs.connection, log, offset, max_bytes=1)
        assert found is not None
        assert [piece.base for piece in found.pieces] == [base]
    found = await find_pieces(logs.connection, log, 7, max_bytes=1)
    assert found is not None
    assert (found.start, found.next, found.pieces) == (0, 7, [])
    assert await find_pieces(logs.connection, 10**6, 0, max_bytes=1) is None


async def test_limits_of_bytes_and_rows(logs: SharedLogs) -> None:
    [log] = await logs.create()
    size = len(make_batch(b"0"))
    for number in range(10):
        await logs.append(log, make_batch(b"%d" % number))
    found = await find_pieces(logs.connection, log, 2, max_bytes=3 * size)
    assert found is not None
    assert [piece.base for piece in found.pieces] == [2, 3, 4]
    found = await find_pieces(logs.connection, log, 2, max_bytes=10**6, max_rows=4)
    assert found is not None
    assert [piece.base for piece in found.pieces] == [2, 3, 4, 5]


async def test_references_become_batches(logs: SharedLogs) -> None:
    [log] = await logs.create()
    target = PartitionId(new_topic_id(), 3)
    made = [Reference(target, 7, 2, NEVER, 50), Reference(target, 90, 1, 1234, 5)]
    await logs.append(log, make_batch(b"before"))
    assert await logs.refer(log, made) == 1
    data = await logs.read(log, 1)
    header = parse_header(data)
    assert list(iter_references(data, header)) == [(1, made[0]), (3, made[1])]
    assert (header.last_offset, header.leader_epoch) == (3, 0)


async def test_a_missing_run_is_damage(logs: SharedLogs) -> None:
    [log] = await logs.create()
    for number in range(3):
        await logs.append(log, make_batch(b"%d" % number))
    await logs.connection.execute("DELETE FROM run WHERE base = 1")
    found = await find_pieces(logs.connection, log, 0, max_bytes=10**6)
    assert found is not None
    assert [piece.base for piece in found.pieces] == [0]
    with pytest.raises(DataDamaged, match="no run or segment holds offset 1"):
        await find_pieces(logs.connection, log, 1, max_bytes=10**6)


async def test_truncated_inline_data_is_none(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await logs.append(log, make_batch(b"0"))
    found = await find_pieces(logs.connection, log, 0, max_bytes=10**6)
    assert found is not None
    [piece] = found.pieces
    assert isinstance(piece, RunRow)
    assert await read_inline(logs.connection, piece) is not None
    await logs.connection.execute("TRUNCATE inline_data_0")
    assert await read_inline(logs.connection, piece) is None


def _run(data: bytes, **changes: object) -> RunRow:
    made = RunRow(
        log=1,
        base=100,
        last=102,
        slot=0,
        inline=5,
        object=None,
        key=None,
        object_size=None,
        pos=10,
        size=len(data),
        max_time=0,
        created_ms=0,
        refs=None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_stamping_leaves_the_source_alone() -> None:
    data = bytes(make_batch(b"a", b"b") + make_batch(b"c"))
    before = bytes(data)
    assert values_in(batches_of(_run(data), data)) == {100: b"a", 101: b"b", 102: b"c"}
    assert data == before


def test_what_does_not_fit_is_damage() -> None:
    data = bytes(make_batch(b"a", b"b") + make_batch(b"c"))
    flipped = bytearray(data)
    flipped[-1] ^= 1
    message = "log 1, offsets 100 to 102, bytes 10 to .* of inline data 5 in slot 0: "
    with pytest.raises(DataDamaged, match=message + ".* checksum") as caught:
        batches_of(_run(data), flipped)
    assert caught.value.next_offset == 103
    assert batches_of(_run(data), flipped, verify=False)
    with pytest.raises(DataDamaged, match="bytes instead of"):
        batches_of(_run(data), data[:-1])
    with pytest.raises(DataDamaged, match="does not fit"):
        batches_of(_run(data, size=len(data) - 1), data[:-1])
    with pytest.raises(DataDamaged, match="too few"):
        batches_of(_run(data, size=len(data) + 5), data + bytes(5))
    with pytest.raises(DataDamaged, match="end at offset 102"):
        batches_of(_run(data, last=103), data)
    with pytest.raises(DataDamaged, match="other offsets"):
        batches_of(_run(b"", refs=bytes(28) + b"\0\0\0\1" + bytes(16)))
    with pytest.raises(DataDamaged, match="not references"):
        batches_of(_run(b"", refs=b"?"))


async def test_aborted_transactions_that_reach_into_the_pieces(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2)
    size = len(make_batch(b"0"))
    for number in range(10):
        await logs.append(log, make_batch(b"%d" % number))
    aborted = [(0, 2), (0, 3), (3, 5), (4, 9), (1, 8), (5, 6), (6, 7)]
    for first, last in aborted:
        await logs.connection.execute(
            "INSERT INTO aborted (log, last, first, producer) VALUES (%s, %s, %s, 7), (%s, %s, %s, 7)",
            [log, last, first, other, last, first],
        )
    found = await find_pieces(logs.connection, log, 3, max_bytes=2 * size, with_aborted=True)
    assert found is not None
    assert [piece.base for piece in found.pieces] == [3, 4]
    reach = {(each.first_offset, each.last_offset) for each in found.aborted}
    assert reach == {(0, 3), (3, 5), (4, 9), (1, 8)}
    found = await find_pieces(logs.connection, log, 10, max_bytes=size, with_aborted=True)
    assert found is not None and found.aborted == []


async def test_a_read_does_not_look_at_all_aborted_transactions(logs: SharedLogs) -> None:
    """Of a log with many, wherever it is read."""
    [log] = await logs.create()
    await logs.connection.execute(
        "INSERT INTO aborted (log, first, last, producer) SELECT %s, at, at + 3, 7 FROM "
        "generate_series(0, 99996, 4) AS at",
        [log],
    )
    await logs.connection.execute("ANALYZE aborted")
    await logs.connection.execute("UPDATE log SET next = 100000")
    await logs.connection.execute(
        "INSERT INTO run (slot, log, base, last, inline, pos, size, max_time, created_ms) "
        "SELECT 0, %s, at, at + 19, 1, 0, 1000, 0, 0 FROM generate_series(0, 99980, 20) AS at",
        [log],
    )
    for offset in (0, 50_000, 99_990):
        wanted = {"log": log, "offset": offset, "rows": 64, "bytes": 2000}
        plan = await logs.connection.execute(
            b"EXPLAIN (ANALYZE, FORMAT JSON) " + _PIECES_AND_ABORTED.encode(), wanted
        )
        [(found,)] = await plan.fetchall()
        seen = [each for each in _nodes(found[0]["Plan"]) if each.get("Relation Name") == "aborted"]
        assert sum(each["Actual Rows"] + each.get("Rows Removed by Filter", 0) for each in seen) < 50


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)
