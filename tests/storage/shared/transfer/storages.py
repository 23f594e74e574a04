"""Data directories and shared storages to copy, and everything that they contain."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from posthouse.model.clock import Clock
from posthouse.model.topic_config import TopicConfig
from posthouse.records.batch import iter_headers
from posthouse.storage.contract import Storage
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.operations import Put, Refer, Run, Trim
from posthouse.storage.shared.administration.transfer.exporting import export_directory
from posthouse.storage.shared.administration.transfer.importing import (
    TransferProgress,
    TransferReport,
    import_directory,
)
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.stores import SharedStores
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic
from tests.storage.compacted import COMPACT, Writer, marker, put
from tests.storage.shared.opened import release, take_lease

SILENT = TransferProgress(begin=lambda total: None, advance=lambda size: None)


def make_stores(url: str, objects: Path, clock: Clock) -> SharedStores:
    return SharedStores(
        database=url, objects=f"file://{objects}", clock=clock, cache_bytes=2**22, inline_bytes=500
    )


async def do_import(directory: Path, stores: SharedStores, clock: Clock) -> TransferReport:
    return await import_directory(directory, stores, clock, SILENT)


async def do_export(directory: Path, stores: SharedStores, clock: Clock) -> TransferReport:
    return await export_directory(directory, stores, clock, SILENT, patience_seconds=0)


@asynccontextmanager
async def opened_shared(stores: SharedStores) -> AsyncIterator[SharedStorage]:
    """As by the coordinator. Its lease ends afterwards, as that of a broker that has stopped."""
    lease = await take_lease(Database(stores.database._conninfo))
    storage = stores.storage(lease, defaults=TopicConfig())
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()
        await release(stores.database, lease)


@asynccontextmanager
async def opened_files(directory: Path, clock: Clock) -> AsyncIterator[FileStorage]:
    storage = FileStorage(directory, clock=clock)
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


async def fill(storage: Storage, count: int = 20) -> None:
    """Some of everything: producers, transactions, references, compaction, trimmed and empty logs, state."""
    plain, keyed, empty = (
        make_topic("plain", 3),
        make_topic("keyed", 1, id=None, **COMPACT),
        make_topic("empty", 2),
    )
    await storage.create_topics([plain, keyed, empty])
    one, two, three = plain.partition_ids()
    [prices], [untouched, gone] = keyed.partition_ids(), empty.partition_ids()
    for number in range(count):
        await storage.commit([append(one, b"%d" % number, b"x" * 30, timestamps=[number, 5000 + number])])
        await storage.commit([put(prices, (b"%d" % (number % 3), b"price %d" % number))])
    for number in range(3):
        await storage.commit([put(two, (None, b"open"), writer=Writer(70, number, False))])
        await storage.commit([put(two, (None, b"bad"), writer=Writer(71, 2 * number))])
        await storage.commit([put(two, (None, b"good"), writer=Writer(72, number))])
        await storage.commit([put(two, (None, b"bad too"), writer=Writer(71, 2 * number + 1))])
        await storage.commit([marker(two, 71, commit=False), marker(two, 72, commit=True)])
    await storage.commit([put(two, (None, b"undecided"), writer=Writer(73, 0))])
    await storage.commit([Refer(three, [Run(one, 3, 4, 100)]), Refer(three, [Run(one, 8, 1, 10, 99_000)])])
    await storage.compact()
    await storage.commit([Trim(one, count // 2 + 1), append(gone, b"1", b"2")])
    await storage.commit([Trim(gone, 2)])
    await storage.commit(
        [
            Put(Space.GROUPS, b"group", b"members"),
            Put(Space.OFFSETS, one.topic + bytes(4) + b"group", b"17"),
            Put(Space.USERS, b"alice", b"\0secret\xff"),
            Put(Space.QUEUE_PROGRESS, bytes(range(40)), b"p" * 3000),
        ]
    )
    assert storage.bounds(untouched).end == 0


async def contents(storage: Storage) -> dict[str, Any]:
    """All that a broker can see of a storage that was just opened."""
    found: dict[str, Any] = {"cluster": storage.cluster_id, "state": {}}
    for space in Space:
        if space is not Space.PRODUCERS and (values := storage.take_state(space)):
            found["state"][space] = values
    for topic in storage.topics.values():
        found[topic.name] = (topic.id, topic.partitions, dict(topic.overrides))
        for partition in topic.partition_ids():
            bounds = storage.bounds(partition)
            found[f"{topic.name}-{partition.index}"] = (
                bounds,
                storage.producers(partition),
                storage.aborted(partition, 0, bounds.end),
                await all_bytes(storage, partition),
                await storage.find_timestamp(partition, 5005),
                await storage.find_max_timestamp(partition),
            )
    return found


async def all_bytes(storage: Storage, partition: Any) -> bytes:
    parts = []
    offset, end = storage.bounds(partition).start, storage.bounds(partition).end
    while offset < end:
        data = bytes((await storage.read(partition, offset, 300)).data)
        parts.append(data)
        offset = max(header.next_offset for _, header in iter_headers(data))
    return b"".join(parts)
