"""Operators look at the cluster when no broker coordinates it: the broker that they ask answers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.node import Node
from posthouse.node_campaign import Campaign
from posthouse.node_life import Role
from posthouse.settings import Authentication
from tests.cli.programs import inside
from tests.cluster.cuttable import cuttable
from tests.cluster.nodes import node, nodes, until

PASSWORD = "secret-of-admin"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    return file


@pytest.fixture
def nobody_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Campaign._may_take

    def may_take(campaign: Campaign, lease_seconds_left: float) -> bool:
        is_first = campaign._node.registry.view.epoch == 0
        return is_first and take(campaign, lease_seconds_left)

    monkeypatch.setattr(Campaign, "_may_take", may_take)


async def command(at: Node, password_file: Path, *words: str) -> dict[str, Any]:
    login = ("--user", "admin", "--password-file", password_file)
    done = await asyncio.to_thread(inside, *login, *words, "--json", admin=str(at.listeners["admin"]))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("nobody_takes_over")
async def test_commands_show_the_cluster_while_there_is_no_coordinator(url: str, password_file: Path) -> None:
    logins: dict[str, Any] = {
        "authentication": Authentication.REQUIRED,
        "admin_password_file": password_file,
    }
    async with nodes(url, "a", "b", **logins) as (coordinator, member):
        await until(lambda: len(member.view.brokers) == 2)
        await coordinator.stop()
        await until(lambda: member.view.holder_incarnation is None and len(member.view.brokers) == 1)
        found = await command(member, password_file, "cluster", "status")
        holders = {each["name"]: each["holder"] for each in found["scopes"]}
        assert holders["coordinator"] is None
        assert ([each["name"] for each in found["brokers"]], found["current"]) == (["b"], True)
        found = await command(member, password_file, "broker", "list")
        assert [(each["name"], each["role"]) for each in found["brokers"]] == [("b", "member")]
        where = f"http://{member.listeners['admin']}"
        async with httpx.AsyncClient(timeout=30) as http:
            for path in ("/v1/cluster", "/v1/brokers"):
                assert (await http.get(f"{where}{path}")).status_code == 401, "nobody has logged in"
        assert member.role is Role.MEMBER


async def test_a_broker_that_lost_the_database_shows_what_it_knew(url: str) -> None:
    async with cuttable(url) as (way, address):
        first, second = node(url, "a"), node(address, "b")
        await first.start()
        await second.start()
        try:
            await until(lambda: len(second.view.brokers) == 2)
            await first.stop()
            way.cut()
            async with httpx.AsyncClient(base_url=f"http://{second.listeners['admin']}", timeout=30) as http:
                async with asyncio.timeout(30):
                    while (await http.get("/v1/cluster")).json()["current"]:
                        await asyncio.sleep(0.05)
                found = (await http.get("/v1/brokers")).json()
                assert not found["current"]
                assert "b" in [each["name"] for each in found["brokers"]]
        finally:
            way.mend()
            await second.stop()
            await first.stop()
