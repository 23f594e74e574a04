"""Signed addresses: anyone can get one object for some time, and nothing else."""

import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.objects.directory import DirectoryObjectStore
from posthouse.storage.shared.objects.measured import MeasuredObjectStore, ObjectStoreMetrics
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.opening import open_object_store
from tests.s3 import S3Server


def get(address: str, first: int, last: int, method: str = "GET") -> bytes:
    request = Request(address, headers={"Range": f"bytes={first}-{last}"}, method=method)
    with urlopen(request, timeout=30) as answer:
        found: bytes = answer.read()
        return found


@pytest.mark.parametrize("is_measured", [False, True])
async def test_addresses_of_a_real_server(s3_server: S3Server, is_measured: bool) -> None:
    store = open_object_store(s3_server.url("signed/here"), timeout=30)
    if is_measured:
        store = MeasuredObjectStore(store, ObjectStoreMetrics())
    await store.put("a/key", b"0123456789")
    await store.put("a/other", b"secret")
    assert store.sign is not None
    key, missing = await store.sign(["a/key", "a/missing"], 60)
    assert get(key, 2, 5) == b"2345"
    for address, status, method in (
        (missing, 404, "GET"),
        (key, 403, "DELETE"),
        (key.replace("a/key", "a/other"), 403, "GET"),
        (key.replace("Expires=60", "Expires=6000"), 403, "GET"),
    ):
        with pytest.raises(HTTPError) as refused:
            get(address, 0, 1, method)
        assert refused.value.code == status
        refused.value.close()
    assert await store.sign([], 60) == []
    await store.close()


async def test_addresses_expire(s3_server: S3Server) -> None:
    store = open_object_store(s3_server.url("expiring"), timeout=30)
    await store.put("key", b"0123456789")
    assert store.sign is not None
    deadline = time.monotonic() + 30
    [address] = await store.sign(["key"], 1)
    while True:
        assert time.monotonic() < deadline
        try:
            get(address, 0, 1)
        except HTTPError as error:
            assert error.code == 403
            error.close()
            break
    await store.close()


def test_stores_without_addresses(tmp_path: Path, clock: ManualClock) -> None:
    assert DirectoryObjectStore(tmp_path, timeout=30).sign is None
    assert MemoryObjectStore(clock).sign is None
