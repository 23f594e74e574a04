"""Whole queues against a plain ledger: whatever clients, disks and power cuts do, nothing is lost or doubled.

Limits are tiny, so that few messages come to the edges of windows, chunks and reservations.
"""

import asyncio
import errno
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from posthouse.broker.progress import chunk, positions
from posthouse.broker.queues import (
    dispatcher,
    expiries,
    key_order,
    lane,
    loader,
    log_queue,
    overflow,
    recovery,
    settlement,
)
from posthouse.model.errors import StorageFull
from posthouse.storage.contract import Storage
from posthouse.storage.files.engine import FileStorage
from tests.broker.queues.queue_consuming import Consuming
from tests.broker.queues.queue_faults import Faults
from tests.broker.queues.queue_ledger import (
    QUEUES,
)
from tests.broker.queues.queue_scene import WINDOW
from tests.directories import IN_MEMORY
from tests.examples import examples
from tests.storage.faults import FaultyDisk
from tests.storage.stores import crash_copy


class QueueMachine(Faults, Consuming):
    """Everything that can happen, in any order."""

    def teardown(self) -> None:
        if self.has_begun:
            self.heal()
            self.run(self.drain())
            self.run(self.broker.stop())
        self.loop.close()

    async def drain(self) -> None:
        """In the end, everything that must be there is handed out, in order."""
        for holder in [*self.consumers, *self.getters.values()]:
            self.let_go(holder, list(holder.held), count=False)
        for name in QUEUES:
            self.join_now(name, 1000)
        await self.quiet()
        for name, entries in self.ledger.alive.items():
            waiting = [entry for entry in entries.values() if entry.holder is None]
            assert name == "keyed" or not waiting


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "WINDOW", WINDOW)
    monkeypatch.setattr(loader, "LOW_WINDOW", WINDOW // 2)
    monkeypatch.setattr(dispatcher, "AT_ONCE", 4)
    monkeypatch.setattr(overflow, "AT_ONCE", 2)
    monkeypatch.setattr(log_queue, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(settlement, "LEASED_BYTES", 3)
    monkeypatch.setattr(loader, "RESERVATION", 4)
    monkeypatch.setattr(lane, "RESERVATION", 4)
    monkeypatch.setattr(expiries, "SPAN", 5)
    monkeypatch.setattr(recovery, "SPAN", 5)
    monkeypatch.setattr(key_order, "CROWD", 3)
    monkeypatch.setattr(positions, "CHUNK_BITS", 3)
    monkeypatch.setattr(positions, "CHUNK", 8)
    monkeypatch.setattr(positions, "_MASK", 7)
    monkeypatch.setattr(chunk, "CHUNK", 8)
    monkeypatch.setattr(chunk, "_FULL", bytearray(b"\x01" * 8))


LIMITS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
}


def test_queues_in_memory() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=examples(60), stateful_step_count=40, **LIMITS)
    )


class FileMachine(QueueMachine):
    """On files, with threads, and with the files that a killed process leaves behind."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="posthouse-queues-", dir=IN_MEMORY))
        self.life = 0

    @property
    def directory(self) -> Path:
        return self.root / str(self.life)

    def make_storage(self) -> Storage:
        self.disk = FaultyDisk()
        return FileStorage(
            self.directory, clock=self.clock, disk=self.disk, journal_bytes=64 * 1024, checkpoint_seconds=3600
        )

    async def crashed_storage(self, unconfirmed: int) -> Storage:
        assert isinstance(self.storage, FileStorage)
        self.life += 1
        await crash_copy(self.storage, self.directory)
        self.storage.fence("as if the power went")
        return self.make_storage()

    async def reopened_storage(self) -> Storage:
        return self.make_storage()

    def set_full(self, is_full: bool) -> None:
        if is_full:
            self.disk.fail("write", "*/journal/*", errno.ENOSPC, for_ever=True)
        else:
            self.disk.heal()

    storage_is_idle = True

    async def still(self) -> None:
        turns = 0
        while turns < 8:
            await asyncio.sleep(0)
            turns = turns + 1 if self.is_still() else 0
            if turns in (0, 4):
                with suppress(StorageFull):
                    await self.storage.barrier()

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


def test_queues_on_files() -> None:
    run_state_machine_as_test(
        FileMachine, settings=settings(max_examples=20, stateful_step_count=30, **LIMITS)
    )
