"""The try of an object store says which call fails and what to do, and leaves nothing behind."""

from collections.abc import AsyncIterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.probe import probe
from posthouse.storage.shared.objects.store import ObjectsAway, ObjectsRefused, StoredObject
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore

ADVICE = "turn it on"


@pytest.mark.parametrize(
    ("fault", "call"),
    [
        (Fault.FAIL, "put"),
        (Fault.FAIL_AFTER, "put"),
        (Fault.FAIL, "read"),
        (Fault.MISSING, "read"),
        (Fault.TRUNCATE, "read"),
        (Fault.FAIL, "list"),
        (Fault.FAIL, "delete"),
    ],
)
async def test_the_call_that_fails(fault: Fault, call: str) -> None:
    inner = MemoryObjectStore(ManualClock())
    store = FaultyObjectStore(inner)
    store.fail(fault, call)
    with pytest.raises(ObjectsAway, match=rf"cannot {call} objects in faulty memory: .*injected.*; {ADVICE}"):
        await probe(store, ADVICE)
    assert [each async for each in inner.list("")] == []


async def test_a_store_that_cannot_do_anything() -> None:
    store = FaultyObjectStore(MemoryObjectStore(ManualClock()))
    for call in ("put", "read", "list", "delete"):
        store.fail(Fault.FAIL, call, for_ever=True)
    with pytest.raises(ObjectsAway, match="cannot put"):
        await probe(store, ADVICE)


class Forgetful(MemoryObjectStore):
    async def read(self, key: str, start: int, size: int) -> bytes:
        return bytes(size)


class Hidden(MemoryObjectStore):
    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        async for each in super().list("elsewhere"):
            yield each


async def test_a_store_that_does_not_keep_its_promises() -> None:
    with pytest.raises(ObjectsRefused, match="other bytes than were put"):
        await probe(Forgetful(ManualClock()), ADVICE)
    with pytest.raises(ObjectsRefused, match="does not list"):
        await probe(Hidden(ManualClock()), ADVICE)
