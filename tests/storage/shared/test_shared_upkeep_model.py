"""Any sequence of commits and housekeeping, with crashes: what is readable equals a model."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.records.references import Reference
from posthouse.storage.retention import nothing_elsewhere, nothing_needed
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.merging.merging import MergingSettings
from tests.postgres import PostgresServer, cluster_only, new_database
from tests.storage.batches import make_batch, values_in
from tests.storage.compacted import COMPACT, put
from tests.storage.shared.crashes import Crash
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation
from tests.storage.shared.test_garbage import garbage
from tests.storage.shared.test_merging import merging
from tests.storage.shared.test_retention import removal, retention
from tests.storage.shared.test_segment_compaction import compaction, records
from tests.storage.shared.test_slots import slots

pytestmark = cluster_only

_WRITES = ("inline", "object", "together", "refer", "compacted")
_WORK = ("consolidate", "slots", "retention", "removal", "garbage", "compact", "merge", "trim", "delete")

steps = st.lists(
    st.tuples(
        st.sampled_from(_WRITES * 2 + _WORK),
        st.integers(0, 2**16),
        st.none() | st.integers(1, 12),
    ),
    min_size=40,
    max_size=60,
)


class _Model:
    """Two logs that keep all, and a compacted one."""

    def __init__(self, logs: SharedLogs, clock: ManualClock) -> None:
        self._logs = logs
        self._clock = clock
        self._values: dict[int, dict[int, bytes]] = {}
        self._keys: dict[int, tuple[bytes, bytes]] = {}
        self._compacted = 0
        self._number = 0

    async def open(self) -> None:
        plain = await self._logs.create("plain", 2, segment_bytes="300", retention_ms="150000")
        self._values = {log: {} for log in plain}
        [self._compacted] = await self._logs.create("compacted", 1, **COMPACT | {"segment_bytes": "250"})

    async def apply(self, name: str, number: int, crash_at: int | None) -> None:
        self._number += 1
        self._clock.advance(7)
        if name in _WRITES:
            await self._write(name, random.Random(number))
            return
        left = crash_at

        def step(_: str) -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left == 0:
                    raise Crash

        self._logs.step = self._logs.objects.step = step
        try:
            await self._work(name, number)
        except Crash:
            await self._logs.take_lease()
        finally:
            self._logs.step = self._logs.objects.step = lambda name: None

    async def _write(self, name: str, chosen: random.Random) -> None:
        logs, log = self._logs, chosen.choice(list(self._values))
        values = [b"%d.%d" % (self._number, at) for at in range(chosen.randint(1, 4))]
        now = self._clock.now_ms()
        if name == "compacted":
            pair = (b"%d" % chosen.randint(0, 4), values[0])
            batch = bytearray(put(await logs.partition_of(self._compacted), pair).batch)
            base = await logs.append(self._compacted, batch, in_object=chosen.random() < 0.5)
            self._keys[base] = pair
        elif name == "refer":
            target = PartitionId(new_topic_id(), 0)
            base = await logs.refer(log, [Reference(target, self._number, len(values), now, 1)])
            data = await logs.read(log, base)
            self._values[log] |= {base: values_in(data)[base] or b""}
        elif name == "together":
            batches = {each: make_batch(*values, timestamps=[now] * len(values)) for each in self._values}
            bases = {
                each: (await logs.one("SELECT next FROM log WHERE id = %s", each))[0] for each in batches
            }
            await logs.append_together(*batches.items())
            for each, base in bases.items():
                self._values[each] |= {base + at: value for at, value in enumerate(values)}
        else:
            batch = make_batch(*values, timestamps=[now] * len(values))
            base = await logs.append(log, batch, in_object=name == "object")
            self._values[log] |= {base + at: value for at, value in enumerate(values)}

    async def _work(self, name: str, number: int) -> None:
        logs = self._logs
        limits = ConsolidationSettings(due_bytes=0, mixed_bytes=500, segment_bytes=400, fetch_bytes=300)

        async def trim() -> None:
            log = list(self._values)[number % 2]
            [start, end] = await logs.one("SELECT start, next FROM log WHERE id = %s", log)
            await logs.trim(log, start + number % 5 if number % 7 else end)
            await removal(logs).run_once()

        async def delete() -> None:
            [log] = await logs.create(f"doomed-{self._number}", 1)
            await logs.append(log, make_batch(b"doomed"), in_object=number % 2 == 0)
            await logs.connection.execute("UPDATE topic SET deleted_at = now() WHERE name LIKE 'doomed%%'")

        async def expire() -> None:
            await (await retention(logs)).enforce(nothing_elsewhere, nothing_needed)

        async def compact() -> None:
            await (await compaction(logs)).run_once(nothing_needed)

        work: dict[str, Callable[[], Awaitable[None]]] = {
            "consolidate": lambda: consolidation(logs, limits).run_once(),
            "slots": lambda: slots(logs).run_once(),
            "retention": expire,
            "removal": lambda: removal(logs).run_once(),
            "garbage": lambda: garbage(logs).run_once(),
            "compact": compact,
            "merge": lambda: merging(logs, MergingSettings(fan_in=2, mixed_bytes=500)).run_once(),
            "trim": trim,
            "delete": delete,
        }
        await work[name]()

    async def check(self) -> None:
        for log, values in self._values.items():
            [start] = await self._logs.one("SELECT start FROM log WHERE id = %s", log)
            found = await self._logs.values(log)
            expected = {offset: value for offset, value in values.items() if offset >= start}
            assert {offset: value for offset, value in found.items() if offset in expected} == expected
            assert found.keys() <= values.keys()
        seen = await records(self._logs, self._compacted)
        assert seen.items() <= self._keys.items()
        latest = {key: offset for offset, (key, _) in sorted(self._keys.items())}
        assert set(latest.values()) <= seen.keys()
        await self._logs.check()


async def _run(url: str, sequence: list[tuple[str, int, int | None]]) -> None:
    clock = ManualClock()
    connection = await (database := Database(url)).connect("tests")
    try:
        logs = SharedLogs(database, connection, clock)
        await logs.take_lease()
        model = _Model(logs, clock)
        await model.open()
        for at, (name, number, crash_at) in enumerate(sequence):
            await model.apply(name, number, crash_at)
            if at % 10 == 9:
                await model.check()
        for name in ("compact", "consolidate", "slots", "removal", "garbage", "slots"):
            await model.apply(name, 0, None)
        await model.check()
        used = await connection.execute("SELECT key FROM object")
        known = {row[0] for row in await used.fetchall()}
        assert known <= logs.objects.stored.keys()
        assert await logs.one("SELECT count(*) FROM topic WHERE deleted_at IS NOT NULL") == (0,)
    finally:
        await connection.close()


@given(sequence=steps)
@settings(
    max_examples=8,
    suppress_health_check=list(HealthCheck),
    # A sequence takes a second, so making a failing one smaller would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_housekeeping_keeps_what_was_committed(
    postgres: PostgresServer, sequence: list[tuple[str, int, int | None]]
) -> None:
    with new_database(postgres, "migrated") as url:
        asyncio.run(_run(url, sequence))
