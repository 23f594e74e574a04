"""A reader of what is decided gets nothing of a transaction that begins while it waits for the device."""

import asyncio
import threading
from pathlib import Path

from posthouse.records.batch import HEADER_SIZE, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.operations import Append
from tests.storage.batches import append, make_topic, values_in
from tests.storage.stores import opened


class SlowDisk(OsDisk):
    """Knows nothing at once, and waits with the first read of a segment until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()
        self.may_read = threading.Event()

    def read_now(self, handle: int, size: int, position: int) -> bytearray | None:
        return None

    def read(self, handle: int, size: int, position: int) -> bytes:
        if size > HEADER_SIZE:  # no more than that is read of a file that is opened
            self.began.set()
            assert self.may_read.wait(10)
        return super().read(handle, size, position)


async def test_a_transaction_that_begins_during_a_read_is_not_served(tmp_path: Path) -> None:
    topic = make_topic()
    partition = topic.partition(0)
    async with opened(tmp_path) as storage:
        await storage.create_topics([topic])
        await storage.commit([append(partition, b"decided")])
    disk = SlowDisk()
    disk.may_read.set()  # recovery reads too
    async with opened(tmp_path, disk=disk) as storage:
        disk.may_read.clear()
        disk.began.clear()
        reading = asyncio.create_task(storage.read(partition, 0, 10_000, stable_only=True))
        await asyncio.to_thread(disk.began.wait, 10)
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        builder.add(None, b"open", timestamp=1000)
        batch = builder.build()
        await storage.commit([Append(partition, memoryview(batch), parse_header(batch))])
        disk.may_read.set()
        found = await reading
        assert list(values_in(found.data).values()) == [b"decided"]
        assert (found.bounds.stable, found.bounds.end) == (1, 2)
