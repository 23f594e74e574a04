"""What PostgreSQL and the object store reach on this machine without a broker: no broker can be faster."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator

import psycopg

from bench.cluster.cpu import Kind, used
from bench.cluster.plan import Stage
from bench.queues.pacing import Latencies
from bench.scale.figures import Row
from posthouse.storage.shared.objects.opening import open_object_store
from posthouse.storage.shared.objects.store import ObjectStore

OBJECT_BYTES = 8 << 20
SMALL_BYTES = 1 << 20
AT_ONCE = 4
INLINE_BYTES = 512 << 10
NOTE = f"""*Alone* is a plain client that only puts objects of {OBJECT_BYTES >> 20} MiB and reads them,
{AT_ONCE} at a time, by the same library as brokers. PostgreSQL alone gets values of {INLINE_BYTES >> 10} KiB,
the largest group that brokers store inline, one transaction each."""
_SECTION = "PostgreSQL and the object store alone"
_SHARE = 0.25
"""Of the seconds of a load."""
_TIMEOUT = 60.0
_MB = 1e6


class Ceilings:
    """Measured once in each round, so that others can be compared within a round."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seconds = stage.plan.seconds * _SHARE
        self._found: dict[tuple[str, str], list[float]] = defaultdict(list)
        """By name and unit."""

    def measure(self) -> None:
        if self._stage.servers.store is not None:
            asyncio.run(self._objects(OBJECT_BYTES, in_directory=False))
            asyncio.run(self._objects(SMALL_BYTES, in_directory=False))
        asyncio.run(self._objects(OBJECT_BYTES, in_directory=True))
        for has_standby in (False, True):
            self._inline(has_standby)

    def rows(self) -> Iterator[Row]:
        for (name, unit), rounds in self._found.items():
            yield Row(section=_SECTION, name=name, unit=unit, rounds=tuple(rounds))

    def of_objects(self, doing: str, *, in_directory: bool) -> tuple[float, ...]:
        """MB/s in each round; `doing` is put or read."""
        is_file = in_directory or self._stage.servers.store is None
        return tuple(self._found[_name(doing, OBJECT_BYTES, is_file), "MB/s"])

    async def _objects(self, size: int, *, in_directory: bool) -> None:
        with self._stage.servers.new_objects(in_directory=in_directory) as address:
            store = open_object_store(address, timeout=_TIMEOUT)
            try:
                await self._put_and_read(store, size, in_directory)
            finally:
                await store.close()

    async def _put_and_read(self, store: ObjectStore, size: int, in_directory: bool) -> None:
        data = os.urandom(size)
        await store.put("ceiling/first", data)
        put = _name("put", size, in_directory)
        count = await self._repeated(put, size, lambda number: store.put(f"ceiling/{number}", data))
        read = _name("read", size, in_directory)
        await self._repeated(read, size, lambda number: _read(store, f"ceiling/{number % count}", size))

    async def _repeated(self, name: str, size: int, work: Callable[[int], Awaitable[None]]) -> int:
        """How often it was done."""
        before = used(self._stage.servers, [])
        begun = time.perf_counter()
        done = 0

        async def again() -> None:
            nonlocal done
            while time.perf_counter() - begun < self._seconds:
                done += 1
                await work(done - 1)

        await asyncio.gather(*(again() for _ in range(AT_ONCE)))
        megabytes = done * size / _MB
        self._note(name, "MB/s", megabytes / (time.perf_counter() - begun))
        if (cost := used(self._stage.servers, []).since(before).per(megabytes)[Kind.OBJECTS]) > 0:
            self._note(f"{name}, CPU of the server", "s per GB", cost)
        return done

    def _inline(self, has_standby: bool) -> None:
        name = f"inline values of {INLINE_BYTES >> 10} KiB" + (", synchronous standby" if has_standby else "")
        data = os.urandom(INLINE_BYTES)
        took: list[int] = []
        with (
            self._stage.servers.new_database(has_standby=has_standby) as database,
            psycopg.connect(database, autocommit=True) as connection,
        ):
            connection.execute("CREATE TABLE ceiling (data bytea)")
            connection.execute("ALTER TABLE ceiling ALTER data SET STORAGE EXTERNAL")
            before = used(self._stage.servers, [])
            begun = time.perf_counter()
            while not took or time.perf_counter() - begun < self._seconds:
                sent = time.perf_counter_ns()
                connection.execute("INSERT INTO ceiling VALUES (%b)", [data])
                took.append(time.perf_counter_ns() - sent)
            seconds = time.perf_counter() - begun
        megabytes = len(took) * INLINE_BYTES / _MB
        latencies = Latencies.of(took)
        cost = used(self._stage.servers, []).since(before).per(megabytes)[Kind.DATABASE]
        self._note(name, "MB/s", megabytes / seconds)
        self._note(f"{name}, CPU of the servers", "s per GB", cost)
        self._note(f"{name}, p50", "ms", latencies.p50)
        self._note(f"{name}, p99", "ms", latencies.p99)

    def _note(self, name: str, unit: str, value: float) -> None:
        self._stage.display.say(f"    {name}: {value:,.2f} {unit}")
        self._found[name, unit].append(value)


def _name(doing: str, size: int, in_directory: bool) -> str:
    return f"{doing} of {size >> 20} MiB, {'in a directory' if in_directory else 'S3'}"


async def _read(store: ObjectStore, key: str, size: int) -> None:
    await store.read(key, 0, size)
