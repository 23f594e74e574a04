"""Calls of an object store are counted and timed, whether they succeed or fail."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.objects.measured import MeasuredObjectStore, ObjectStoreMetrics
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.store import ObjectMissing, ObjectsAway
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore


async def test_calls_are_counted_and_timed() -> None:
    faulty = FaultyObjectStore(MemoryObjectStore(ManualClock()), delay_seconds=0.02)
    metrics = ObjectStoreMetrics()
    store = MeasuredObjectStore(faulty, metrics)
    assert store.name == faulty.name

    await store.put("a", b"12345")
    faulty.fail(Fault.FAIL, "put")
    with pytest.raises(ObjectsAway):
        await store.put("b", b"12345")
    faulty.fail(Fault.DELAY, "put")
    await store.put("b", b"123")
    assert (metrics.put.seconds.count, metrics.put.failures) == (3, 1)
    assert (metrics.put.objects, metrics.put.bytes) == (2, 8)
    assert metrics.put.seconds.sum >= 0.02

    assert await store.read("a", 1, 3) == b"234"
    with pytest.raises(ObjectMissing):
        await store.read("c", 0, 1)
    assert (metrics.read.seconds.count, metrics.read.failures) == (2, 1)
    assert (metrics.read.objects, metrics.read.bytes) == (1, 3)

    assert {each.key async for each in store.list("")} == {"a", "b"}
    faulty.fail(Fault.FAIL, "list")
    with pytest.raises(ObjectsAway):
        [each async for each in store.list("")]
    assert (metrics.list.seconds.count, metrics.list.failures, metrics.list.objects) == (2, 1, 2)

    await store.delete(["a", "b", "c"])
    assert (metrics.delete.seconds.count, metrics.delete.failures, metrics.delete.objects) == (1, 0, 3)
    await store.check()
    await store.close()
