"""Every object store keeps the same promises."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.model.clock import SystemClock
from posthouse.storage.shared.objects.directory import DirectoryObjectStore
from posthouse.storage.shared.objects.measured import MeasuredObjectStore, ObjectStoreMetrics
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.opening import open_object_store
from posthouse.storage.shared.objects.store import (
    Buffer,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    StoredObject,
)


@pytest.fixture(params=["memory", "measured", "directory", "s3", "s3&checksum=none", "s3&checksum=crc64nvme"])
async def store(request: pytest.FixtureRequest, memory_path: Path, name: str) -> AsyncIterator[ObjectStore]:
    made: ObjectStore
    if request.param == "memory":
        made = MemoryObjectStore(SystemClock())
    elif request.param == "measured":
        made = MeasuredObjectStore(MemoryObjectStore(SystemClock()), ObjectStoreMetrics())
    elif request.param == "directory":
        made = DirectoryObjectStore(memory_path / "objects", timeout=10)
    else:
        url = request.getfixturevalue("s3_server").url(name) + request.param.removeprefix("s3")
        made = open_object_store(url, timeout=10)
    yield made
    await made.close()


async def listed(store: ObjectStore, prefix: str = "") -> dict[str, StoredObject]:
    return {each.key: each async for each in store.list(prefix)}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
async def test_an_object_is_read_as_it_was_put(store: ObjectStore, kind: type[Buffer]) -> None:
    data = bytes(range(256)) * 16
    await store.put("a/b.data", kind(data))
    assert await store.read("a/b.data", 0, len(data)) == data
    assert await store.read("a/b.data", 1000, 100) == data[1000:1100]
    assert await store.read("a/b.data", len(data) - 1, 1) == data[-1:]


async def test_a_slice_of_a_buffer_is_put(store: ObjectStore) -> None:
    await store.put("sliced", memoryview(b"0123456789")[2:5])
    assert await store.read("sliced", 0, 3) == b"234"


async def test_large_objects(store: ObjectStore) -> None:
    data = bytes(range(251)) * 160_000  # 40 MB
    await store.put("large", data)
    assert await store.read("large", 0, len(data)) == data
    start = 17 * 1024 * 1024 - 5
    assert await store.read("large", start, 10) == data[start : start + 10]


async def test_an_empty_object(store: ObjectStore) -> None:
    await store.put("empty", b"")
    assert (await listed(store))["empty"].size == 0
    with pytest.raises(ObjectDamaged):
        await store.read("empty", 0, 1)


async def test_a_put_may_be_repeated(store: ObjectStore) -> None:
    await store.put("twice", b"same")
    await store.put("twice", b"same")
    assert await store.read("twice", 0, 4) == b"same"
    assert list(await listed(store)) == ["twice"]


@pytest.mark.parametrize("start", [0, 3, 7, 8, 1000])
async def test_a_read_beyond_the_end_is_damage(store: ObjectStore, start: int) -> None:
    await store.put("short", b"12345678")
    with pytest.raises(ObjectDamaged, match="short"):
        await store.read("short", start, 9)


@pytest.mark.parametrize("key", ["missing", "there/missing", "there/is/missing", "there"])
async def test_a_missing_object(store: ObjectStore, key: str) -> None:
    await store.put("there/is", b"one")
    with pytest.raises(ObjectMissing, match=key):
        await store.read(key, 0, 1)


async def test_a_deleted_object_is_missing(store: ObjectStore) -> None:
    for key in ("a/1", "a/2", "b/1"):
        await store.put(key, b"x")
    await store.delete(["a/1", "b/1"])
    with pytest.raises(ObjectMissing):
        await store.read("a/1", 0, 1)
    assert list(await listed(store)) == ["a/2"]


async def test_a_delete_may_be_repeated(store: ObjectStore) -> None:
    await store.put("a/1", b"x")
    await store.delete(["a/1", "never/was", "a/1"])
    await store.delete(["a/1", "never/was"])
    await store.delete([])
    await store.delete(("never/was", "nor/this"))
    assert await listed(store) == {}


async def test_very_many_deletes_at_once(store: ObjectStore) -> None:
    keys = [f"many/{number}" for number in range(1100)]
    await asyncio.gather(*(store.put(key, b"x") for key in keys))
    await store.delete(keys)
    assert await listed(store) == {}


async def test_a_listing_is_by_whole_segments(store: ObjectStore) -> None:
    keys = {"a/1", "a/2", "a/b/3", "ab/4", "a-b/5", "c"}
    for key in keys:
        await store.put(key, key.encode())
    assert set(await listed(store)) == keys
    assert set(await listed(store, "a")) == {"a/1", "a/2", "a/b/3"}
    assert set(await listed(store, "a/b")) == {"a/b/3"}
    assert set(await listed(store, "c")) == set()
    assert set(await listed(store, "nothing/here")) == set()


async def test_a_listing_has_sizes_and_times(store: ObjectStore) -> None:
    before = time.time() * 1000
    await store.put("a/1", b"12345")
    found = (await listed(store))["a/1"]
    assert found.size == 5
    assert before - 2000 <= found.modified_ms <= time.time() * 1000 + 2000


async def test_a_listing_of_several_pages(store: ObjectStore) -> None:
    keys = {f"{number % 3}/{number}" for number in range(1203)}
    await asyncio.gather(*(store.put(key, b"x") for key in keys))
    assert set(await listed(store)) == keys
    assert len(await listed(store, "1")) == 401


async def test_a_listing_may_be_left_early(store: ObjectStore) -> None:
    for number in range(5):
        await store.put(f"a/{number}", b"x")
    async for each in store.list("a"):
        assert each.size == 1
        break
    assert len(await listed(store, "a")) == 5


@pytest.mark.parametrize(
    "key", ["", "/", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.b", "a b", "ä", "a\n"]
)
async def test_what_is_no_key_is_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        await store.put(key, b"x")
    with pytest.raises(ValueError, match="not a key"):
        await store.read(key, 0, 1)
    with pytest.raises(ValueError, match="not a key"):
        await store.delete(["good", key])
    if key:
        with pytest.raises(ValueError, match="not a key"):
            await listed(store, key)


async def test_many_at_once(store: ObjectStore) -> None:
    async def use(number: int) -> None:
        key, data = f"{number % 7}/{number}", bytes([number]) * 1000
        await store.put(key, data)
        assert await store.read(key, 0, 1000) == data
        if number % 2:
            await store.delete([key])

    await asyncio.gather(*(use(number) for number in range(100)))
    assert len(await listed(store)) == 50


async def test_a_check_leaves_nothing_behind(store: ObjectStore) -> None:
    await store.check()
    assert await listed(store) == {}
