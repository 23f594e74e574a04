"""`posthouse.testing` on a shared storage: what was stored is there again, and other brokers have it, too."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from posthouse.model.errors import InvalidConfig
from posthouse.testing import AsyncBroker


async def test_a_broker_finds_what_the_one_before_stored(url: str, tmp_path: Path) -> None:
    place: dict[str, Any] = {"database": url, "objects": f"file://{tmp_path}/objects"}
    async with AsyncBroker(**place) as broker, httpx.AsyncClient() as http:
        made = await http.post(f"http://{broker.admin}/v1/topics", json={"name": "orders"})
        assert made.status_code < 300
        async with AsyncBroker(**place) as member:
            shown = await asyncio.to_thread(_topics, member.kafka)
            assert "orders" in shown
    async with AsyncBroker(**place) as broker, httpx.AsyncClient() as http:
        assert (await http.get(f"http://{broker.admin}/v1/topics/orders")).status_code == 200


async def test_a_broker_with_users_leaves_nothing_in_the_working_directory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working, kept = tmp_path / "working", tmp_path / "kept"
    working.mkdir()
    monkeypatch.chdir(working)
    place: dict[str, Any] = {"database": url, "objects": f"file://{tmp_path}/objects"}
    for settings in ({}, place, {"data": kept}, {**place, "data": kept}):
        async with AsyncBroker(users={"ann": "secret"}, **settings) as broker:
            async with httpx.AsyncClient(auth=("ann", "secret")) as http:
                assert (await http.get(f"http://{broker.admin}/v1/topics")).status_code == 200
            assert broker.app.broker.access.audit.is_on is ("data" in settings)
    assert not list(working.iterdir())
    assert (kept / "audit.log").exists()


def _topics(address: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).topics)


def test_protocols_of_others_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="serves the protocols of Posthouse only"):
        AsyncBroker(database="postgresql://localhost/x", objects="file:///x", front_ends=())
