"""Whole queues against a plain ledger, on a shared storage: takeovers in the place of power cuts."""

import asyncio
from contextlib import ExitStack, suppress
from typing import Any

from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from posthouse.model.errors import StorageFull
from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Slice
from posthouse.storage.contract import Storage
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.broker.queues.test_queue_model import LIMITS, QueueMachine, tiny  # noqa: F401 - an autouse fixture
from tests.postgres import MIGRATED, PostgresServer, cluster_only, new_database
from tests.storage.shared.opened import PlainBlocks, take_lease

pytestmark = cluster_only


class WatchedStorage(SharedStorage):
    """Tells how many reads are under way, and refuses commits as if the database had no room."""

    reads = 0

    async def read(self, partition: PartitionId, offset: int, max_bytes: int, **options: Any) -> Slice:
        self.reads += 1
        try:
            return await super().read(partition, offset, max_bytes, **options)
        finally:
            self.reads -= 1

    def set_full(self, is_full: bool) -> None:
        async def refuse(*_: Any, **__: Any) -> None:
            raise StorageFull("PostgreSQL has no room")

        for path in (self._committer._inline, self._committer._object):
            if is_full:
                vars(path.call)["commit"] = refuse
            else:
                vars(path.call).pop("commit", None)

    @property
    def is_idle(self) -> bool:
        paths = (self._committer._inline, self._committer._object)
        return not self.reads and all(path.worker is None for path in paths)


class SharedMachine(QueueMachine):
    storage: WatchedStorage

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.database = Database(self.stack.enter_context(new_database(server, MIGRATED)))
        self.objects = MemoryObjectStore(self.clock)

    def make_storage(self) -> Storage:
        return self.loop.run_until_complete(self.reopened_storage())

    async def reopened_storage(self) -> Storage:
        lease = await take_lease(self.database)
        return WatchedStorage(
            self.database,
            self.objects,
            PlainBlocks(self.objects),
            lease,
            clock=self.clock,
            tail_bytes=400,
        )

    async def crashed_storage(self, unconfirmed: int) -> Storage:
        """The commit that is under way counts, or is refused because another broker has the lease."""
        return await self.reopened_storage()

    def set_full(self, is_full: bool) -> None:
        self.storage.set_full(is_full)

    @property
    def storage_is_idle(self) -> bool:
        return self.storage.is_idle

    async def wait_for_storage(self) -> None:
        await asyncio.sleep(0.001)
        with suppress(StorageFull):
            await self.storage.barrier()

    def teardown(self) -> None:
        super().teardown()
        self.stack.close()


def test_queues_on_a_shared_storage(postgres: PostgresServer) -> None:
    class Machine(SharedMachine):
        def __init__(self) -> None:
            super().__init__(postgres)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=10,
            stateful_step_count=25,
            **LIMITS,
            # An example takes seconds, so making a failing one smaller would take minutes.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
