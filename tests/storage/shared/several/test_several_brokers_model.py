"""Three brokers write, read and keep house on two logs in any order; consumers go from broker to broker.

A consumer never sees a gap, an offset twice, a record above the last stable offset or an aborted record, and
no broker ever takes back what it said of a log.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from itertools import pairwise

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from posthouse.model.clock import ManualClock
from posthouse.model.errors import OffsetOutOfRange
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import COORDINATOR, GROUPS, HOUSEKEEPING
from posthouse.records.batch import iter_headers
from posthouse.storage.bounds import Bounds, Slice
from posthouse.storage.log_news import LogNews
from posthouse.storage.operations import Trim
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.slots import SlotSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import make_topic, values_in
from tests.storage.compacted import COMPACT, Writer, marker, put
from tests.storage.shared.opened import make_member, make_shared, move_scope, take_lease
from tests.storage.shared.several.brokers import Brokers, committed_in

_UPKEEP = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=0, mixed_bytes=500, segment_bytes=400, fetch_bytes=300),
    slots=SlotSettings(open_seconds=0.0),
)
_ACTIONS = (
    *("append", "append", "read", "read", "read", "transaction", "refresh", "hint", "trim"),
    *("house", "house", "move"),
)

steps = st.lists(
    st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 2**32)), min_size=1, max_size=4),
    min_size=30,
    max_size=40,
)


class _Log:
    """What was written: offsets, and the transactions that hold records back or hide them."""

    def __init__(self, partition: PartitionId, *, is_compacted: bool) -> None:
        self.partition = partition
        self.is_compacted = is_compacted
        self.values: dict[int, bytes] = {}
        self.keys: dict[int, bytes] = {}
        self.end = 0
        self.start = 0
        self.open: dict[int, list[int]] = {}
        """Offsets of the open transaction, by producer."""
        self.aborted: set[int] = set()
        self.sequences: defaultdict[int, int] = defaultdict(int)

    @property
    def stable(self) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=self.end)

    @property
    def undecided(self) -> set[int]:
        return {offset for offsets in self.open.values() for offset in offsets}


class _Consumer:
    """Reads one log from its start on, each time at another broker."""

    def __init__(self, log: _Log, *, stable_only: bool) -> None:
        self.log = log
        self.stable_only = stable_only
        self.position = 0
        self.found: tuple[int, Slice] | None = None
        """The last slice, and the position that was asked for."""

    def check(self) -> None:
        if self.found is None:
            return
        (asked, part), self.found = self.found, None
        headers = [header for _, header in iter_headers(part.data)]
        if not headers:
            return
        log = self.log
        assert headers[0].base_offset <= asked < headers[0].next_offset
        for header, following in pairwise(headers):
            assert following.base_offset == header.next_offset, "no gap, and no offset twice"
        self.position = headers[-1].next_offset
        assert self.position <= (log.stable if self.stable_only else log.end)
        everything = values_in(part.data)
        shown = committed_in(part) if self.stable_only else everything
        visible = {
            offset: value
            for offset, value in log.values.items()
            if asked <= offset < self.position
            and not (self.stable_only and offset in log.aborted | log.undecided)
        }
        seen = {offset: value for offset, value in shown.items() if offset >= asked and offset in log.values}
        assert seen.items() <= visible.items()
        if not log.is_compacted:
            must = {offset: value for offset, value in visible.items() if offset >= log.start}
            assert must.items() <= seen.items()


class _Scene:
    def __init__(
        self, brokers: Brokers, database: Database, clock: ManualClock, logs: Sequence[_Log]
    ) -> None:
        self._brokers = brokers
        self._database = database
        self._clock = clock
        self._logs = logs
        self._number = 0
        self._hints: list[LogNews] = []
        self._known: dict[tuple[int, PartitionId], Bounds] = {}
        self._one_by_one = asyncio.Lock()
        self._consumers = [
            _Consumer(log, stable_only=stable_only) for log in logs for stable_only in (False, True)
        ]
        for each in brokers:
            each.grown(self._hints.extend)

    async def step(self, actions: Sequence[tuple[str, int]]) -> None:
        """All at the same time, but each consumer reads once, only one transaction goes on, and one scope
        moves."""
        self._clock.advance(3)
        work: list[Awaitable[None]] = []
        reading: set[int] = set()
        is_busy = is_moving = False
        for name, number in actions:
            chosen = random.Random(number)
            if name == "append":
                work.append(self._append(chosen))
            elif name == "read":
                which = chosen.randrange(len(self._consumers))
                if which not in reading:
                    reading.add(which)
                    work.append(self._read(self._consumers[which], chosen))
            elif name == "refresh":
                log = chosen.choice(self._logs)
                with_producers = chosen.random() < 0.3
                storage = chosen.choice(self._brokers)
                work.append(storage.refresh([log.partition], with_producers=with_producers))
            elif name == "hint":
                chosen.choice(self._brokers).hinted([each for each in self._hints if chosen.random() < 0.3])
            elif name == "house":
                work.append(self._keep_house(chosen))
            elif name == "move":
                if not is_moving:
                    is_moving = True
                    work.append(self._move(chosen))
            elif not is_busy:
                is_busy = True
                work.append(self._by_coordinator(name, chosen))
        await asyncio.gather(*work)
        self.check()

    def check(self) -> None:
        for consumer in self._consumers:
            consumer.check()
        for number, each in enumerate(self._brokers):
            for log in self._logs:
                bounds = each.bounds(log.partition)
                before = self._known.get((number, log.partition), Bounds(0, 0, 0))
                assert bounds.start >= before.start and bounds.end >= before.end
                assert bounds.stable >= before.stable, "never backwards"
                assert bounds.end <= log.end and bounds.stable <= max(log.stable, log.start)
                self._known[number, log.partition] = bounds

    async def _append(self, chosen: random.Random) -> None:
        log = chosen.choice(self._logs)
        await self._write(chosen.choice(self._brokers), log, chosen)

    async def _write(
        self, storage: SharedStorage, log: _Log, chosen: random.Random, writer: Writer | None = None
    ) -> list[int]:
        """Returns the offsets."""
        self._number += 1
        keys = [b"%d" % chosen.randrange(3) for _ in range(chosen.randint(1, 3))]
        pairs = [(key, b"%d.%d" % (self._number, at)) for at, key in enumerate(keys)]
        append = put(log.partition, *pairs, timestamp=self._clock.now_ms(), writer=writer)
        [outcome] = await storage.commit([append])
        assert outcome.refusal is None
        offsets = list(range(outcome.base_offset, outcome.base_offset + len(pairs)))
        assert not log.values.keys() & set(offsets), "an offset is given out once"
        log.values |= zip(offsets, (value for _, value in pairs), strict=True)
        log.keys |= zip(offsets, keys, strict=True)
        log.end = max(log.end, offsets[-1] + 1)
        return offsets

    async def _by_coordinator(self, name: str, chosen: random.Random) -> None:
        a, log = self._brokers.a, chosen.choice(self._logs)
        if name == "trim":
            if not log.open and chosen.random() < 0.3:
                [outcome] = await a.commit([Trim(log.partition, chosen.randint(log.start, log.end))])
                log.start = outcome.log_start
        else:
            await self._transaction(log, chosen)

    async def _keep_house(self, chosen: random.Random) -> None:
        """What the coordinator does for all, or any broker for its logs."""
        a = self._brokers.a
        assert a._upkeep is not None
        part = chosen.randrange(6)
        if part < 2:
            async with self._one_by_one:  # as a coordinator does it
                await a._upkeep._housekeeping._parts[part].run_once()
            return
        storage = chosen.choice(self._brokers)
        if part == 2:
            await storage.compact()
        elif part == 3:
            await storage.enforce_retention()
        else:
            await storage.log_scopes._housekeeping._parts[part - 4].run_once()

    async def _move(self, chosen: random.Random) -> None:
        scope = chosen.choice(HOUSEKEEPING)
        [holder] = [each for each in self._brokers if each.log_scopes.holds(scope)]
        await move_scope(self._database, scope, holder, chosen.choice(self._brokers))

    async def _transaction(self, log: _Log, chosen: random.Random) -> None:
        producer = chosen.randint(1, 2)
        if producer in log.open and chosen.random() < 0.5:
            commit = chosen.random() < 0.5
            [outcome] = await self._brokers.a.commit([marker(log.partition, producer, commit=commit)])
            log.end = max(log.end, outcome.base_offset + 1)
            offsets = log.open.pop(producer)
            if not commit:
                log.aborted.update(offsets)
            return
        writer = Writer(producer, log.sequences[producer])
        written = await self._write(self._brokers.a, log, chosen, writer)
        log.sequences[producer] += len(written)
        log.open[producer] = [*log.open.get(producer, []), *written]

    async def _read(self, consumer: _Consumer, chosen: random.Random) -> None:
        storage, log = chosen.choice(self._brokers), consumer.log
        max_bytes = chosen.choice([1, 200, 2000])
        try:
            part = await storage.read(
                log.partition, consumer.position, max_bytes, stable_only=consumer.stable_only
            )
        except OffsetOutOfRange:
            start = storage.bounds(log.partition).start
            assert consumer.position < start, "a consumer never knows more than the database"
            consumer.position = start
        else:
            consumer.found = consumer.position, part

    async def finish(self) -> None:
        """All consumers come to the end, at every broker."""
        for log in self._logs:
            for producer in list(log.open):
                [outcome] = await self._brokers.a.commit([marker(log.partition, producer, commit=True)])
                log.end = max(log.end, outcome.base_offset + 1)
                del log.open[producer]
        for storage in self._brokers:
            await storage.refresh([log.partition for log in self._logs])
            for log in self._logs:
                assert storage.bounds(log.partition) == Bounds(log.start, log.end, log.end)
                await self._read_whole(storage, log)

    async def _read_whole(self, storage: SharedStorage, log: _Log) -> None:
        consumer = _Consumer(log, stable_only=True)
        consumer.position = log.start
        shown: set[int] = set()
        while consumer.position < log.end:
            part = await storage.read(log.partition, consumer.position, 500, stable_only=True)
            shown |= committed_in(part).keys()
            consumer.found = consumer.position, part
            consumer.check()
        committed = [
            offset for offset in sorted(log.values) if offset >= log.start and offset not in log.aborted
        ]
        latest = {log.keys[offset]: offset for offset in committed}
        assert set(latest.values() if log.is_compacted else committed) <= shown


async def _run(url: str, sequence: Sequence[Sequence[tuple[str, int]]], tail_bytes: int, inline: int) -> None:
    clock = ManualClock()
    database, objects = Database(url), MemoryObjectStore(clock)
    made = [
        await make_shared(
            database,
            objects,
            clock,
            tail_bytes=tail_bytes,
            inline_bytes=inline,
            upkeep=_UPKEEP,
            scopes=(COORDINATOR, *GROUPS, *HOUSEKEEPING[::3]),
        )
    ]
    made += [
        await make_member(
            database,
            objects,
            clock,
            tail_bytes=tail_bytes,
            inline_bytes=inline,
            lease=await take_lease(database, scopes=HOUSEKEEPING[number::3]),
            upkeep=_UPKEEP,
        )
        for number in (1, 2)
    ]
    for each in made:
        await each.open()
    try:
        brokers = Brokers(*made)
        plain = make_topic("plain", 1)
        compacted = make_topic("compacted", 1, id=None, **COMPACT | {"delete_retention_ms": "10"})
        await brokers.create(plain)
        await brokers.create(compacted)
        logs = [
            _Log(plain.partition(0), is_compacted=False),
            _Log(compacted.partition(0), is_compacted=True),
        ]
        scene = _Scene(brokers, database, clock, logs)
        for actions in sequence:
            await scene.step(actions)
        await scene.finish()
    finally:
        for each in reversed(made):
            await each.close()


@given(
    sequence=steps,
    tail_bytes=st.sampled_from([0, 300, 2**20]),
    inline=st.sampled_from([100, 2**19]),
)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A sequence takes a second or two, so making a failing one smaller would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_several_brokers_are_like_one_log(
    postgres: PostgresServer,
    sequence: list[list[tuple[str, int]]],
    tail_bytes: int,
    inline: int,
) -> None:
    with new_database(postgres, MIGRATED) as url:
        asyncio.run(_run(url, sequence, tail_bytes, inline))
