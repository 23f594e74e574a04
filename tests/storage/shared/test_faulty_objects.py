"""The injected faults are those that they are said to be."""

import asyncio
from random import Random

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.store import ObjectDamaged, ObjectMissing, ObjectsAway, ObjectStore
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore


async def listed(store: ObjectStore) -> set[str]:
    return {each.key async for each in store.list("")}


@pytest.fixture
def inner() -> MemoryObjectStore:
    return MemoryObjectStore(ManualClock())


async def test_an_error_before(inner: MemoryObjectStore) -> None:
    store = FaultyObjectStore(inner)
    store.fail(Fault.FAIL, "put")
    with pytest.raises(ObjectsAway, match="without effect"):
        await store.put("a", b"x")
    assert await listed(inner) == set()
    await store.put("a", b"x")
    assert await listed(inner) == {"a"}


async def test_stored_but_answered_with_an_error(inner: MemoryObjectStore) -> None:
    store = FaultyObjectStore(inner)
    store.fail(Fault.FAIL_AFTER, "put", "b*")
    await store.put("a", b"x")
    with pytest.raises(ObjectsAway, match="took effect"):
        await store.put("b1", b"x")
    assert await listed(inner) == {"a", "b1"}
    store.fail(Fault.FAIL_AFTER, "delete")
    with pytest.raises(ObjectsAway):
        await store.delete(["a", "b1"])
    assert await listed(inner) == set()


async def test_reads_of_less(inner: MemoryObjectStore) -> None:
    store = FaultyObjectStore(inner)
    await store.put("a", b"x")
    store.fail(Fault.TRUNCATE, "read")
    with pytest.raises(ObjectDamaged):
        await store.read("a", 0, 1)
    store.fail(Fault.MISSING, "read", after=1, for_ever=True)
    assert await store.read("a", 0, 1) == b"x"
    for _ in range(2):
        with pytest.raises(ObjectMissing):
            await store.read("a", 0, 1)
    store.heal()
    assert await store.read("a", 0, 1) == b"x"
    assert store.calls["read"] == 5


async def test_a_slow_listing(inner: MemoryObjectStore) -> None:
    store = FaultyObjectStore(inner, delay_seconds=0.02)
    for key in "abc":
        await store.put(key, b"x")
    store.fail(Fault.SLOW_LIST, "list")
    began = asyncio.get_running_loop().time()
    assert await listed(store) == {"a", "b", "c"}
    assert asyncio.get_running_loop().time() - began >= 0.05


async def test_a_gate(inner: MemoryObjectStore) -> None:
    store = FaultyObjectStore(inner)
    store.gate.clear()
    putting = asyncio.create_task(store.put("a", b"x"))
    await asyncio.sleep(0)
    assert await listed(inner) == set()
    store.gate.set()
    await putting
    assert await listed(inner) == {"a"}


async def test_the_same_seed_gives_the_same_faults(inner: MemoryObjectStore) -> None:
    async def failures(seed: int) -> list[int]:
        store = FaultyObjectStore(inner, random=Random(seed), rates={Fault.FAIL: 0.2, Fault.FAIL_AFTER: 0.2})
        failed = []
        for number in range(50):
            try:
                await store.put(str(number), b"x")
            except ObjectsAway:
                failed.append(number)
        assert store.faults[Fault.FAIL] and store.faults[Fault.FAIL_AFTER]
        return failed

    assert await failures(1) == await failures(1) != await failures(2)
