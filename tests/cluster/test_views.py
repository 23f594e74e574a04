"""What operators see of a cluster: by HTTP, in metrics, with commands; from every broker."""

import asyncio
import json

import httpx

from posthouse.node import Node
from posthouse.testing import AsyncBroker
from tests.cli.programs import inside
from tests.cluster.nodes import CALM, nodes, until


async def test_brokers_by_http_and_in_metrics(url: str) -> None:
    async with nodes(url, "a", "b", times=CALM, rack="east") as (first, second), httpx.AsyncClient() as http:
        await until(lambda: len(first.view.brokers) == 2)
        for each in (first, second):
            admin = f"http://{each.listeners['admin']}"
            found = (await http.get(f"{admin}/v1/brokers")).json()
            told = [(each["id"], each["name"], each["role"], each["rack"]) for each in found["brokers"]]
            assert told == [(1, "a", "coordinator", "east"), (2, "b", "member", "east")]
            assert found["brokers"][1]["addresses"]["kafka"] == str(second.listeners["kafka"])
            assert found["epoch"] == 1
            assert 0 < found["lease_seconds"] <= CALM.seconds
            settings = (await http.get(f"{admin}/v1/settings")).json()["settings"]
            shown = {each["name"]: each["value"] for each in settings}
            assert shown["database"] == url


async def test_each_broker_has_metrics_of_its_own(url: str) -> None:
    async with nodes(url, "a", "b", times=CALM) as (first, second), httpx.AsyncClient() as http:
        await until(lambda: len(first.view.brokers) == 2)

        async def metrics(each: Node) -> list[str]:
            return (await http.get(f"http://{each.listeners['admin']}/metrics")).text.splitlines()

        for each, held in ((first, 1), (second, 0)):
            async with asyncio.timeout(10):
                while "posthouse_peer_hint_links 1" not in (found := await metrics(each)):
                    await asyncio.sleep(0.1)
            assert {
                "posthouse_cluster_brokers 2",
                f"posthouse_lease_held {held}",
                "posthouse_relayed_requests_total 0",
            } <= set(found)


async def test_brokers_on_the_command_line(url: str) -> None:
    async with nodes(url, "a", "b", times=CALM) as (first, second):
        await until(lambda: len(first.view.brokers) == 2)
        admin = str(second.listeners["admin"])
        done = await asyncio.to_thread(inside, "broker", "list", admin=admin)
        assert done.returncode == 0
        lines = [line.split() for line in done.stdout.splitlines()]
        assert [line[:3] for line in lines[1:]] == [["1", "a", "coordinator"], ["2", "b", "member"]]
        assert "the lease has epoch 1" in done.stderr
        done = await asyncio.to_thread(inside, "broker", "list", "--json", admin=admin)
        assert json.loads(done.stdout)["epoch"] == 1


async def test_a_broker_that_is_alone() -> None:
    async with AsyncBroker() as broker, httpx.AsyncClient() as http:
        found = (await http.get(f"http://{broker.admin}/v1/brokers")).json()
        [only] = found["brokers"]
        assert (only["id"], only["role"], found["epoch"]) == (1, "alone", None)
        assert only["addresses"]["kafka"] == broker.kafka
        metrics = (await http.get(f"http://{broker.admin}/metrics")).text
        assert "posthouse_lease" not in metrics
        done = await asyncio.to_thread(inside, "broker", "list", admin=broker.admin)
        assert "alone" in done.stdout
