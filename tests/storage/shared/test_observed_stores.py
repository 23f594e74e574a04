"""An object store that fails is noticed, and noticed to be back even if no client asks for an object."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared import observed_stores
from posthouse.storage.shared.objects.measured import MeasuredObjectStore, ObjectStoreMetrics
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.store import ObjectMissing, ObjectsAway
from posthouse.storage.shared.observed_stores import ObservedStores
from posthouse.storage.shared.reads.block_cache import BlockCache
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore


async def test_a_store_that_fails_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_stores, "_CHECK_SECONDS", 0.0)
    faulty = FaultyObjectStore(MemoryObjectStore(ManualClock()))
    metrics = ObjectStoreMetrics()
    store = MeasuredObjectStore(faulty, metrics)
    observed = ObservedStores(store, metrics, BlockCache(store, max_bytes=2**22))
    await store.put("a", b"12345")
    assert observed.objects_failure() is None

    faulty.fail(Fault.FAIL, "put")
    with pytest.raises(ObjectsAway):
        await store.put("b", b"12345")
    told = observed.objects_failure()
    assert told is not None and "has not answered for 0 s" in told and "latency=object" in told
    assert observed.away_seconds is not None

    async with asyncio.timeout(10):
        while observed.objects_failure() is not None:
            await asyncio.sleep(0.01)
    assert observed.away_seconds is None

    with pytest.raises(ObjectMissing):
        await store.read("c", 0, 1)
    assert observed.objects_failure() is None, "the store answered"
    await observed.close()
