"""Health: what makes a broker unready, told as JSON; a broker that is not ready is alive all the same."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from posthouse.storage.files.catalog.catalog import RESERVE_BYTES
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


async def _fence(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    answered(await http.post("/v1/topics", json={"name": "t"}), 201)
    storage: Any = broker.app.broker._storage
    storage._flusher.fence("the cable is out")
    answered(await http.post("/v1/topics/t/records", json={"records": [{"value": "x"}]}), 503)


async def test_storage_that_is_fenced(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        answered(await http.get("/health/ready"))
        await _fence(broker, http)
        unready = answered(await http.get("/health/ready"), 503)
        assert unready["status"] == "unready"
        [reason] = unready["reasons"]
        assert reason.startswith("storage takes no writes: ") and "the cable is out" in reason
        assert answered(await http.get("/v1/overview"))["reasons"] == [reason]
        failed = answered(await http.get("/api/health/checks/alarms"), 503)
        assert (failed["status"], failed["reason"]) == ("failed", reason)
        assert "posthouse_storage_writable 0\n" in (await http.get("/metrics")).text
        answered(await http.get("/health/live"))


async def test_a_disk_below_its_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        left = RESERVE_BYTES
        monkeypatch.setattr(shutil, "disk_usage", lambda path: _Usage(10 * left, 9 * left, left))
        [reason] = answered(await http.get("/health/ready"), 503)["reasons"]
        assert reason.startswith(f"the disk of the data directory is full ({left} bytes free): delete topics")
        [node] = answered(await http.get("/api/nodes"))
        assert node["disk_free_alarm"] is True
        monkeypatch.undo()
        answered(await http.get("/health/ready"))


async def test_reasons_are_for_those_who_have_logged_in(tmp_path: Path) -> None:
    async with (
        AsyncBroker(data=tmp_path, users=USERS) as broker,
        client(broker) as http,
        client(broker, "ann") as ann,
    ):
        async with client(broker, "admin") as admin:
            await _fence(broker, admin)
        assert answered(await http.get("/health/ready"), 503) == {"status": "unready"}
        assert len(answered(await ann.get("/health/ready"), 503)["reasons"]) == 1
