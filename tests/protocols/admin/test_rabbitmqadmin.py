"""RabbitMQ's own rabbitmqadmin, unmodified, against Posthouse."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aio_pika
import pytest

from posthouse.listener_settings import Address
from posthouse.testing import AsyncBroker

_FETCHED = Path(__file__).parents[3] / "build" / "rabbitmqadmin"
"""By the Makefile."""
_PROGRAM = str(_FETCHED) if _FETCHED.exists() else shutil.which("rabbitmqadmin")
pytestmark = pytest.mark.skipif(
    _PROGRAM is None, reason="rabbitmqadmin is not installed; 'make rabbitmqadmin' fetches it on Debian"
)


class Admin:
    """Runs the program as a person would."""

    def __init__(self, broker: AsyncBroker, *login: str) -> None:
        self.broker = broker
        self._where = Address.parse(broker.admin)
        self._login = login

    async def fails(self, *arguments: str) -> str:
        code, output = await self._run(*arguments)
        assert code != 0, output
        return output

    async def __call__(self, *arguments: str) -> str:
        code, output = await self._run(*arguments)
        assert code == 0, output
        return output

    async def rows(self, *arguments: str) -> list[list[str]]:
        lines = (await self("-q", "-f", "tsv", *arguments)).splitlines()
        return [line.split("\t") for line in lines if line != "No items"]

    async def _run(self, *arguments: str) -> tuple[int, str]:
        where = ("-H", self._where.host, "-P", str(self._where.port))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_PROGRAM),
            *where,
            *self._login,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with AsyncBroker(namespaces=("shop",)) as broker:
        yield Admin(broker)


async def test_declare_publish_get_purge_delete(admin: Admin) -> None:
    assert "queue declared" in await admin("declare", "queue", "name=q", "durable=true")
    assert "exchange declared" in await admin("declare", "exchange", "name=news", "type=topic")
    assert "binding declared" in await admin(
        "declare", "binding", "source=news", "destination=q", "routing_key=a.#"
    )
    assert "Message published\n" in await admin(
        "publish", "exchange=news", "routing_key=a.b", "payload=hello"
    )
    assert "NOT routed" in await admin("publish", "exchange=news", "routing_key=b", "payload=hello")
    assert await admin.rows("list", "queues", "name", "messages") == [["q", "1"]]
    got = json.loads(await admin("-f", "raw_json", "get", "queue=q"))
    assert (got[0]["payload"], got[0]["exchange"], got[0]["routing_key"]) == ("hello", "news", "a.b")
    assert got[0]["redelivered"] is False
    again = json.loads(await admin("-f", "raw_json", "get", "queue=q", "ackmode=ack_requeue_false"))
    assert again[0]["redelivered"] is True
    assert "No items" in await admin("get", "queue=q")
    await admin("publish", "routing_key=q", "payload=x")
    assert "queue purged" in await admin("purge", "queue", "name=q")
    assert await admin.rows("list", "queues", "name", "messages") == [["q", "0"]]
    bindings = await admin.rows("list", "bindings")
    assert ["news", "q", "a.#"] in bindings
    assert "binding deleted" in await admin(
        "delete",
        "binding",
        "source=news",
        "destination_type=queue",
        "destination=q",
        "properties_key=a.%23",
    )
    assert await admin.rows("list", "bindings") == [["", "q", "q"]]
    assert "queue deleted" in await admin("delete", "queue", "name=q")
    assert "exchange deleted" in await admin("delete", "exchange", "name=news")
    assert await admin.rows("list", "queues") == []


@pytest.mark.parametrize(
    "kind",
    [
        "connections",
        "channels",
        "consumers",
        "exchanges",
        "queues",
        "bindings",
        "users",
        "vhosts",
        "permissions",
        "nodes",
        "parameters",
        "policies",
        "operator_policies",
        "vhost_limits",
    ],
)
async def test_everything_can_be_listed(admin: Admin, kind: str) -> None:
    async with await aio_pika.connect(f"amqp://guest:guest@{admin.broker.amqp}/") as connection:
        channel = await connection.channel()
        await channel.set_qos(7)
        queue = await channel.declare_queue("q")
        await queue.consume(_hold, consumer_tag="watcher")
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
        for form in ("table", "long", "kvp", "pretty_json"):
            await admin("-f", form, "list", kind)
        rows = await admin.rows("list", kind, *_COLUMNS.get(kind, ()))
        assert rows == _ROWS[kind] if kind in _ROWS else rows or kind in _EMPTY


async def _hold(message: object) -> None:
    """Never acknowledge it."""


_COLUMNS = {
    "channels": ("user", "number", "prefetch_count", "messages_unacknowledged", "consumer_count"),
    "connections": ("user", "vhost", "channels", "protocol"),
    "consumers": ("consumer_tag", "prefetch_count", "queue.name"),
    "queues": ("name", "messages", "messages_unacknowledged", "consumers", "state"),
}
_ROWS = {
    "channels": [["guest", "1", "7", "1", "1"]],
    "connections": [["guest", "/", "1", "AMQP 0-9-1"]],
    "consumers": [["watcher", "7", "q"]],
    "queues": [["q", "1", "1", "1", "running"]],
    "vhosts": [["/", "1"], ["shop", "0"]],
}
_EMPTY = {"users", "permissions", "parameters", "policies", "operator_policies", "vhost_limits"}


async def test_overview(admin: Admin) -> None:
    await admin("declare", "queue", "name=q")
    await admin("publish", "routing_key=q", "payload=x")
    shown = await admin.rows("show", "overview")
    assert shown == [["3.13.0", "posthouse", "1", "1"]]


async def test_sorting(admin: Admin) -> None:
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        await admin("declare", "queue", f"name={name}")
        for _ in range(count):
            await admin("publish", f"routing_key={name}", "payload=x")
    rows = await admin.rows("-S", "messages", "-R", "list", "queues", "name")
    assert rows == [["b"], ["c"], ["a"]]


async def test_definitions_are_exported_and_imported(admin: Admin, tmp_path: Path) -> None:
    for arguments in (
        ("exchange", "name=news", "type=topic"),
        ("exchange", "name=late", "type=x-delayed-message", 'arguments={"x-delayed-type": "direct"}'),
        ("queue", "name=q", 'arguments={"x-max-length": 5, "x-queue-type": "quorum"}'),
        ("binding", "source=news", "destination=q", "routing_key=a"),
        ("binding", "source=news", "destination=late", "destination_type=exchange"),
    ):
        await admin("declare", *arguments)
    await admin("-V", "shop", "declare", "queue", "name=orders")
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    await admin("export", str(whole))
    await admin("-V", "shop", "export", str(part))
    document = json.loads(whole.read_text())
    assert sorted(each["name"] for each in document["queues"]) == ["orders", "q"]
    async with AsyncBroker(namespaces=("shop",)) as other:
        another = Admin(other)
        await another("import", str(whole))
        await another("import", str(whole))
        again = tmp_path / "again.json"
        await another("export", str(again))
        assert json.loads(again.read_text()) == document
        await another("-V", "/", "import", str(part))
        assert ["/", "orders"] in await another.rows("list", "queues", "vhost", "name")


async def test_refusals_are_told(admin: Admin) -> None:
    await admin("declare", "queue", "name=q", "durable=true")
    assert "inequivalent arg 'durable' for queue 'q' in vhost '/'" in await admin.fails(
        "declare", "queue", "name=q", "durable=false"
    )
    assert "Not found" in await admin.fails("delete", "queue", "name=none")
    assert "Access refused" in await admin.fails("declare", "exchange", "name=amq.mine", "type=direct")
    assert "setting `namespaces`" in await admin.fails("declare", "vhost", "name=more")


async def test_a_connection_is_closed(admin: Admin) -> None:
    connection = await aio_pika.connect(f"amqp://guest:guest@{admin.broker.amqp}/")
    [[name]] = await admin.rows("list", "connections", "name")
    await admin("close", "connection", f"name={name}")
    async with asyncio.timeout(10):
        while await admin.rows("list", "connections"):
            await asyncio.sleep(0.01)
    await connection.close()
    assert "Not found" in await admin.fails("close", "connection", f"name={name}")


async def test_users_and_permissions(tmp_path: Path) -> None:
    async with AsyncBroker(users={"admin": "secret", "ann": "password"}) as broker:
        admin = Admin(broker, "-u", "admin", "-p", "secret")
        ann = Admin(broker, "-u", "ann", "-p", "password")
        await admin("declare", "queue", "name=hers")
        await admin("declare", "queue", "name=others")
        assert await ann.rows("list", "queues") == []
        assert "Access refused" in await ann.fails("delete", "queue", "name=hers")
        await admin(
            "declare", "permission", "vhost=/", "user=ann", "configure=^hers$", "write=^her.*", "read=.*"
        )
        assert ["ann", "/", "^hers$", "^her.*", ".*"] in await admin.rows(
            "list", "permissions", "user", "vhost", "configure", "write", "read"
        )
        assert await ann.rows("list", "queues", "name") == [["hers"], ["others"]]
        assert "Access refused" in await ann.fails("delete", "queue", "name=others")
        assert "cannot be expressed" in await admin.fails(
            "declare", "permission", "vhost=/", "user=ann", "configure=a.c", "write=", "read="
        )
        await ann("delete", "queue", "name=hers")
        await admin("declare", "user", "name=bob", "password=builder", "tags=management")
        await Admin(broker, "-u", "bob", "-p", "builder")("list", "queues")
        await admin("delete", "permission", "vhost=/", "user=ann")
        assert await ann.rows("list", "queues") == []
        await admin("delete", "user", "name=bob")
        assert "Access refused" in await Admin(broker, "-u", "bob", "-p", "builder").fails("list", "queues")
        assert ["admin", "administrator"] in await admin.rows("list", "users", "name", "tags")
