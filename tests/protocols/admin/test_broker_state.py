"""Settings, disk, archive and pipelines by HTTP."""

from pathlib import Path

import aio_pika
import httpx

from posthouse.app import App
from posthouse.broker.dynamic_settings import SettingScope
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.loaded_settings import load_settings
from posthouse.model.ids import ARCHIVE_GROUP, MemberId
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import answered, client


async def test_settings_say_where_they_come_from() -> None:
    async with AsyncBroker(max_unacked=7) as broker, client(broker) as http:
        await broker.app.broker.dynamic_settings.change(
            SettingScope.CLUSTER, lambda old: {"topic.retention.ms": "5"}
        )
        found = {each["name"]: each for each in answered(await http.get("/v1/settings"))["settings"]}
        assert (found["max_unacked"]["value"], found["max_unacked"]["source"]) == ("7", "set")
        assert (found["log_level"]["value"], found["log_level"]["source"]) == ("info", "default")
        assert found["topic.retention.ms"]["source"] == "runtime"
        assert "unacknowledged" in found["max_unacked"]["meaning"]
        assert (found["memory"]["value"], found["kafka_tls"]["value"]) == ("true", None)


async def test_settings_of_a_process_say_flag_environment_or_file(tmp_path: Path) -> None:
    file = tmp_path / "posthouse.toml"
    file.write_text("max_unacked = 7\n")
    flags = {"memory": True, "kafka": "off", "amqp": "off", "admin": "127.0.0.1:0"}
    app = App(load_settings(file=file, environment={"POSTHOUSE_LOG_LEVEL": "info"}, flags=flags))
    await app.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://{app.listeners['admin']}") as http:
            found = answered(await http.get("/v1/settings"))["settings"]
    finally:
        await app.stop()
    sources = {each["name"]: each["source"] for each in found}
    assert {name for name, source in sources.items() if source == "flag"} == flags.keys()
    assert (sources["max_unacked"], sources["log_level"]) == ("file", "environment")
    assert sources["open_files"] == "default", "the broker computes it"


async def test_what_fills_the_disk(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        for name, size in (("small", 10), ("large", 10_000)):
            answered(await http.post("/v1/topics", json={"name": name, "partitions": 1}), 201)
            records = {"records": [{"value": "x" * size}]}
            answered(await http.post(f"/v1/topics/{name}/records", json=records))
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        channel = await connection.channel()
        await channel.declare_queue("jobs", durable=True)
        await channel.default_exchange.publish(aio_pika.Message(b"y" * 5000), "jobs")
        disk = answered(await http.get("/v1/disk"))
        topics = [each["name"] for each in disk["logs"] if each["kind"] == "topic"]
        assert topics == ["large", "jobs", "small"]
        [queue] = [each for each in disk["logs"] if each["kind"] == "queue"]
        assert (queue["name"], queue["namespace"]) == ("jobs", "/")
        assert disk["journal"] > 0
        assert 0 < disk["free"] <= disk["total"]
        assert disk["logs_bytes"] == sum(each["bytes"] for each in disk["logs"])
        seen, after = [], 0
        while after is not None:
            found = answered(await http.get("/v1/disk", params={"limit": 1, "after": after}))
            seen += found["logs"]
            after = found["next"]
        assert seen == disk["logs"]
        await connection.close()


async def test_disk_in_memory() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        disk = answered(await http.get("/v1/disk"))
        assert (disk["free"], disk["journal"], disk["logs"], disk["next"]) == (None, None, [], None)


async def test_archived_offsets() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        settings = {"retention.local.ms": "1000"}
        answered(
            await http.post("/v1/topics", json={"name": "t", "partitions": 2, "settings": settings}), 201
        )
        inner = broker.app.broker
        new = [NewOffset(partition=inner.topic("t").partition(1), offset=0)]
        await inner.groups.offsets.commit(ARCHIVE_GROUP, MemberIdentity(member=MemberId("")), new)
        [found] = answered(await http.get("/v1/archive"))["items"]
        assert (found["topic"], found["retention_local_ms"]) == ("t", 1000)
        assert found["partitions"] == [{"partition": 1, "archived": 0, "start": 0, "end": 0}]
        assert (found["partitions_total"], found["behind"]) == (1, 0)


async def test_archived_offsets_of_very_many_partitions() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        inner = broker.app.broker
        answered(await http.post("/v1/topics", json={"name": "wide", "partitions": 2000}), 201)
        record = {"value": "x", "partition": 1999}
        answered(await http.post("/v1/topics/wide/records", json={"records": [record]}))
        new = [NewOffset(partition=each, offset=0) for each in inner.topic("wide").partition_ids()]
        await inner.groups.offsets.commit(ARCHIVE_GROUP, MemberIdentity(member=MemberId("")), new)
        [found] = answered(await http.get("/v1/archive"))["items"]
        assert [each["partition"] for each in found["partitions"]] == list(range(100))
        assert (found["partitions_total"], found["behind"]) == (2000, 1)


async def test_pipelines_are_not_invented() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await broker.app.broker.transactions.commit_sets.commit("orders-query", 7, [])
        found = answered(await http.get("/v1/pipelines"))
        assert (found["running"], found["sinks"]["items"]) == (
            None,
            [{"name": "orders-query", "last_epoch": 7, "open_transactions": 0}],
        )
        assert "not told" in found["note"]
