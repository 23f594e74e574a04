"""Memory of uploads is used again, but only when no store can still be reading it."""

import asyncio

import pytest

from posthouse.model.errors import Unavailable
from posthouse.storage.shared.commits import payloads
from posthouse.storage.shared.commits.upload_buffers import UploadBuffers
from posthouse.storage.shared.engine import SharedStorage
from tests.storage.batches import append, read_all
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore
from tests.storage.shared.test_committer import partitions_in

MIB = 1024 * 1024


def parts(*sizes: int) -> list[memoryview]:
    return [memoryview(bytes([number + 1]) * size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", [[10], [MIB], [MIB - 1, 1], [MIB, 100, 2 * MIB], [4 * MIB + 1], []])
def test_all_sizes(sizes: list[int]) -> None:
    buffers = UploadBuffers(4 * MIB)
    for _ in range(3):
        found = buffers.filled(parts(*sizes), sum(sizes))
        assert found == b"".join(parts(*sizes))
        buffers.recycle(found)


def test_memory_is_used_again_when_it_was_given_back() -> None:
    buffers = UploadBuffers(4 * MIB)
    first = buffers.filled(parts(3 * MIB), 3 * MIB)
    second = buffers.filled(parts(MIB, MIB), 2 * MIB)
    assert isinstance(first, memoryview) and isinstance(second, memoryview)
    assert first.obj is not second.obj
    assert first == bytes([1]) * (3 * MIB)
    buffers.recycle(first)
    third = buffers.filled(parts(2 * MIB), 2 * MIB)
    assert isinstance(third, memoryview) and third.obj is first.obj


def test_few_are_kept() -> None:
    buffers = UploadBuffers(MIB)
    for each in [buffers.filled(parts(MIB), MIB) for _ in range(20)]:
        buffers.recycle(each)
    assert len(buffers._free) == 4


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER])
async def test_not_after_a_failure(shared: SharedStorage, objects: FaultyObjectStore, fault: Fault) -> None:
    slow, _ = await partitions_in(shared)
    objects.fail(fault, "put", for_ever=True)
    value = bytes(MIB)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await shared.commit([append(slow, value)])
    assert shared._uploads._buffers._free == []


async def test_groups_in_flight_do_not_share_memory(
    shared: SharedStorage, objects: FaultyObjectStore
) -> None:
    slow, _ = await partitions_in(shared)
    values = [bytes([number]) * (payloads.OBJECT_BYTES // 5) for number in range(12)]
    for _ in range(2):
        await asyncio.gather(*(shared.commit([append(slow, value)]) for value in values))
    assert list((await read_all(shared, slow, max_bytes=2**24)).values()) == values * 2
    assert shared._uploads._buffers._free
