"""Housekeeping that is killed or loses its scopes at each of its steps, and then is done again."""

from posthouse.model.clock import SystemClock
from posthouse.storage.retention import nothing_needed
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.objects.names import hour_prefix
from tests.postgres import cluster_only
from tests.storage.compacted import COMPACT
from tests.storage.shared.crashes import at_every_step, without_scopes_at_every_step
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill
from tests.storage.shared.test_garbage import HOUR_MS, garbage, known
from tests.storage.shared.test_merging import ALL, consolidated, merging
from tests.storage.shared.test_retention import removal
from tests.storage.shared.test_segment_compaction import compaction, latest, write
from tests.storage.shared.test_slots import slots

pytestmark = cluster_only


async def test_consolidation(logs: SharedLogs) -> None:
    [log, other, large] = await logs.create(partitions=3, segment_bytes="500")

    async def prepare() -> None:
        await fill(logs, log, 4)
        await fill(logs, other, 4)
        await fill(logs, large, 12)

    settings = ConsolidationSettings(due_bytes=0, mixed_bytes=1200, segment_bytes=600, fetch_bytes=300)
    steps = await at_every_step(logs, prepare, lambda: consolidation(logs, settings).run_once())
    assert steps > 10


async def test_slots(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2)

    async def prepare() -> None:
        await fill(logs, log, 2)
        await fill(logs, other, 2)
        await slots(logs).run_once()
        await consolidation(logs).consolidate([log])
        await fill(logs, log, 1)

    async def work() -> None:
        await slots(logs).run_once()
        await consolidation(logs).run_once()
        await slots(logs).run_once()

    assert await at_every_step(logs, prepare, work) > 20


async def test_removal(logs: SharedLogs) -> None:
    number = 0

    async def prepare() -> None:
        nonlocal number
        number += 1
        gone = await logs.create(f"gone-{number}", partitions=2, segment_bytes="14")
        [log] = await logs.create(f"trimmed-{number}", segment_bytes="14")
        for each in (*gone, log):
            await fill(logs, each, 4)
        await consolidation(logs).consolidate([gone[0], log])
        await logs.trim(log, 7)
        await logs.connection.execute(
            "UPDATE topic SET deleted_at = now() WHERE name = %s", [f"gone-{number}"]
        )

    assert await at_every_step(logs, prepare, lambda: removal(logs, rows_at_once=100).run_once()) > 8
    assert await logs.one("SELECT count(*) FROM topic WHERE deleted_at IS NOT NULL") == (0,)


async def test_garbage(logs: SharedLogs) -> None:
    [log] = await logs.create()
    now = SystemClock().now_ms()

    async def prepare() -> None:
        await fill(logs, log, 4)
        await consolidation(logs).run_once()
        for hours in (26, 27):
            await logs.objects.put(f"{hour_prefix(now - hours * HOUR_MS)}/{logs.names.new()[14:]}", b"?")
        await logs.connection.execute(
            "INSERT INTO sweep VALUES ('orphans', date_trunc('hour', now(), 'UTC') - interval '29 hours') "
            "ON CONFLICT (name) DO UPDATE SET done_to = excluded.done_to"
        )

    assert await at_every_step(logs, prepare, lambda: garbage(logs).run_once()) > 15
    assert set(logs.objects.stored) == await known(logs)


async def test_compaction(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "250"})

    async def prepare() -> None:
        await write(logs, log, *((b"%d" % (number % 3), b"%d" % number) for number in range(6)))

    async def work() -> None:
        await (await compaction(logs)).run_once(nothing_needed)

    assert await at_every_step(logs, prepare, work, latest) > 15


async def test_consolidation_without_its_scopes(logs: SharedLogs) -> None:
    [log, other, large] = await logs.create(partitions=3, segment_bytes="500")

    async def prepare() -> None:
        await fill(logs, log, 4)
        await fill(logs, other, 4)
        await fill(logs, large, 12)

    settings = ConsolidationSettings(due_bytes=0, mixed_bytes=1200, segment_bytes=600, fetch_bytes=300)
    assert (
        await without_scopes_at_every_step(logs, prepare, lambda: consolidation(logs, settings).run_once())
        > 10
    )


async def test_merging_without_its_scopes(logs: SharedLogs) -> None:
    [log, other] = await logs.create("orders", 2, **ALL)

    async def prepare() -> None:
        await consolidated(logs, log, other)

    assert await without_scopes_at_every_step(logs, prepare, lambda: merging(logs).run_once()) > 5


async def test_compaction_without_its_scopes(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "250"})

    async def prepare() -> None:
        await write(logs, log, *((b"%d" % (number % 3), b"%d" % number) for number in range(6)))

    async def work() -> None:
        await (await compaction(logs)).run_once(nothing_needed)

    assert await without_scopes_at_every_step(logs, prepare, work, latest) > 15
