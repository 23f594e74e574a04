"""Verification finds what is damaged, and nothing in what is whole."""

import pytest

from posthouse.storage.shared.administration.verify import SharedFinding, SharedVerification
from tests.storage.batches import make_batch
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill


async def findings(logs: SharedLogs) -> list[SharedFinding]:
    return [each async for each in SharedVerification(logs.connect, logs.objects).findings()]


async def filled(logs: SharedLogs) -> int:
    """A log with three segments, a run in an object and one inline."""
    [log] = await logs.create(segment_bytes="300")
    await fill(logs, log, 7)
    await consolidation(logs).run_once()
    await logs.append(log, make_batch(b"in an object"), in_object=True)
    await logs.append(log, make_batch(b"inline"))
    return log


def change(logs: SharedLogs, key: str, at: int, value: bytes) -> None:
    data, modified = logs.objects.stored[key]
    logs.objects.stored[key] = (data[:at] + value + data[at + len(value) :], modified)


async def test_what_is_whole_is_counted(logs: SharedLogs) -> None:
    await filled(logs)
    seen: list[int] = []
    verification = SharedVerification(logs.connect, logs.objects, seen.append)
    assert [each async for each in verification.findings()] == []
    tally = verification.tally
    assert (tally.logs, tally.segments, tally.runs, tally.batches, tally.records) == (1, 3, 2, 9, 16)
    assert sum(seen) == tally.bytes
    assert await verification.total_bytes() == tally.bytes - 3 * 48


async def test_a_damaged_segment(logs: SharedLogs) -> None:
    log = await filled(logs)
    segment = (await logs.segments(log))[1]
    change(logs, segment.key, segment.pos + 48 + 70, b"?")
    [found] = await findings(logs)
    assert found.is_damage
    assert found.place == "orders-0"
    assert f"offsets {segment.base} to {segment.base + 1} cannot be read" in found.problem


async def test_segments_in_each_others_place(logs: SharedLogs) -> None:
    log = await filled(logs)
    first, second = (await logs.segments(log))[:2]
    await logs.connection.execute(
        "UPDATE segment SET pos = -1 - pos WHERE base IN (%s, %s)", [first.base, second.base]
    )
    await logs.connection.execute("UPDATE segment SET pos = %s WHERE base = %s", [second.pos, first.base])
    await logs.connection.execute("UPDATE segment SET pos = %s WHERE base = %s", [first.pos, second.base])
    found = await findings(logs)
    assert len(found) == 2
    assert all("instead of topics/" in each.problem for each in found)


async def test_a_damaged_header_and_a_damaged_index(logs: SharedLogs) -> None:
    log = await filled(logs)
    first, second = (await logs.segments(log))[:2]
    change(logs, first.key, first.pos, b"?")
    await logs.connection.execute(
        "UPDATE segment SET index = set_byte(index, 30, 7) WHERE base = %s", [second.base]
    )
    problems = [each.problem for each in await findings(logs)]
    assert [problem.partition(": ")[2] for problem in problems] == [
        "its header is damaged",
        "its index is damaged",
    ]


async def test_an_object_that_is_missing_or_too_short(logs: SharedLogs) -> None:
    log = await filled(logs)
    segment = (await logs.segments(log))[-1]
    data, modified = logs.objects.stored[segment.key]
    logs.objects.stored[segment.key] = (data[:-5], modified)
    [found] = await findings(logs)
    assert f"has no {segment.size} bytes" in found.problem
    del logs.objects.stored[segment.key]
    assert all("is missing" in each.problem for each in await findings(logs))


@pytest.mark.parametrize(
    "statement", ["DELETE FROM segment WHERE base = 6", "DELETE FROM run WHERE base = 14"]
)
async def test_a_gap(logs: SharedLogs, statement: str) -> None:
    await filled(logs)
    await logs.connection.execute(statement.encode())
    found = await findings(logs)
    assert "no run or segment holds offset" in found[0].problem


async def test_damaged_and_missing_runs(logs: SharedLogs) -> None:
    await filled(logs)
    [key] = await logs.one("SELECT key FROM run JOIN object ON object.id = run.object WHERE base = 14")
    change(logs, key, 65, b"?")
    await logs.connection.execute(
        "DELETE FROM inline_data WHERE id = (SELECT inline FROM run WHERE base = 15)"
    )
    problems = [each.problem for each in await findings(logs)]
    assert "does not match its checksum" in problems[0]
    assert "the inline data is missing" in problems[1]


async def test_wrong_counts_of_uses(logs: SharedLogs) -> None:
    log = await filled(logs)
    key = (await logs.segments(log))[0].key
    await logs.connection.execute("UPDATE object SET live = live + 1 WHERE key = %s", [key])
    [found] = await findings(logs)
    assert (found.place, found.problem) == (key, "4 uses are noted, 3 are found")
    assert not found.is_damage
    await logs.connection.execute("UPDATE object SET live = 0, doomed_at = now() WHERE key = %s", [key])
    [found] = await findings(logs)
    assert found.is_damage, "it will be deleted though it is used"
