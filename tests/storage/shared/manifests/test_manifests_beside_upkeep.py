"""Clients that take their time with the objects of a manifest, beside housekeeping that deletes objects."""

import asyncio

import pytest

from posthouse.storage.shared.housekeeping.garbage import GarbageSettings
from posthouse.storage.shared.objects.store import ObjectMissing
from tests.storage.batches import make_batch, values_in
from tests.storage.shared.manifests.clients import ManifestClient, manifest_client
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation
from tests.storage.shared.test_garbage import garbage
from tests.storage.shared.test_merging import ALL, merging
from tests.storage.shared.test_retention import removal

GRACE = GarbageSettings(grace_seconds=0.2)
"""Longer than a manifest takes, shorter than its reader."""
_TURNS = 20
"""Of housekeeping, while a reader waits: small segments are merged after eight."""


class SlowReader:
    def __init__(self, client: ManifestClient, log: int, *, is_holding: bool) -> None:
        self._client = client
        self._log = log
        self._is_holding = is_holding
        self.turns = 0
        """Of housekeeping."""
        self.rounds = 0
        self.missing = 0
        self.is_stopped = False

    async def run(self) -> None:
        while not self.is_stopped:
            await self._read()
            self.rounds += 1

    async def _read(self) -> None:
        client, logs = self._client, self._client.logs
        client.hold = None
        [start] = await logs.one("SELECT start FROM log WHERE id = %s", self._log)
        found = await client.range_of(self._log, start)
        if client.hold is not None and not self._is_holding:
            await client.manifests.release(client.hold)
        since = self.turns
        while self.turns < since + _TURNS and not self.is_stopped:
            await asyncio.sleep(0.01)
        expected = start
        try:
            for data in await client.bytes_of(found):
                for offset, value in values_in(data).items():
                    if offset >= start:
                        assert (offset, value) == (expected, b"%d" % offset)
                        expected += 1
        except ObjectMissing:
            self.missing += 1
        if client.hold is not None:
            await client.manifests.release(client.hold)


@pytest.mark.parametrize("is_holding", [True, False])
async def test_readers_find_what_they_hold(logs: SharedLogs, is_holding: bool) -> None:
    [log] = await logs.create("orders", 1, **ALL)
    async with manifest_client(logs) as client:
        # A connection belongs to one task at a time.
        client.logs = SharedLogs(logs.database, await logs.connect(), logs.clock)
        client.logs.objects = logs.objects
        reader = SlowReader(client, log, is_holding=is_holding)
        task = asyncio.create_task(reader.run())
        try:
            number = 0
            while reader.rounds < 3 and not task.done():
                await logs.append(log, make_batch(b"%d" % number))
                number += 1
                await consolidation(logs).run_once()
                await merging(logs).run_once()
                if number % 20 == 0:
                    await logs.trim(log, number - 10)
                    await removal(logs).run_once()
                await garbage(logs, GRACE).run_once()
                reader.turns += 1
        finally:
            reader.is_stopped = True
            await task
            await client.logs.connection.close()
    assert bool(reader.missing) != is_holding, "without a hold objects go before they are read"
    await logs.check()
