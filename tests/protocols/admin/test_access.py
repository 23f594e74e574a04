"""Users, permissions and quotas by HTTP."""

import asyncio
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client

ACL = {"principal": "User:ann", "operation": "read", "kind": "topic", "name": "orders"}


async def test_users() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        made = answered(await admin.put("/v1/users/bob", json={"password": "first"}))
        assert made == {"name": "bob", "superuser": False, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
        listed = answered(await admin.get("/v1/users"))["items"]
        assert [(each["name"], each["superuser"]) for each in listed] == [
            ("admin", True),
            ("ann", False),
            ("bob", False),
        ]
        answered(await admin.get("/v1/topics", auth=("bob", "first")))
        answered(await admin.put("/v1/users/bob", json={"password": "second"}))
        answered(await admin.get("/v1/topics", auth=("bob", "first")), 401)
        answered(await admin.delete("/v1/users/bob"), 204)
        answered(await admin.delete("/v1/users/bob"), 404)
        for password in ("", None, 7):
            answered(await admin.put("/v1/users/bob", json={"password": password}), 400)
        answered(await admin.put("/v1/users/*", json={"password": "x"}), 400)


async def test_permissions_are_added_listed_and_deleted() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        answered(await admin.post("/v1/topics", json={"name": "orders"}), 201)
        answered(await ann.get("/v1/topics/orders"), 403)
        added = answered(await admin.post("/v1/acls", json={"acls": [ACL]}), 201)
        assert added["acls"] == [ACL | {"pattern": "literal", "host": "*", "allow": True}]
        answered(await ann.get("/v1/topics/orders"))
        assert answered(await admin.get("/v1/acls"))["items"] == added["acls"]
        wanted = {"principal": "User:ann"}
        assert answered(await admin.post("/v1/acls/delete", json=wanted | {"dry_run": True}))["total"] == 1
        assert answered(await admin.get("/v1/acls"))["total"] == 1
        assert answered(await admin.post("/v1/acls/delete", json=wanted))["acls"] == added["acls"]
        answered(await ann.get("/v1/topics/orders"), 403)
        answered(await admin.post("/v1/acls/delete", json={"dry_run": False}), 400)


@pytest.mark.parametrize(
    "change", [{"operation": "fly"}, {"kind": "moon"}, {"principal": "ann"}, {"name": ""}, {"colour": "red"}]
)
async def test_permissions_that_make_no_sense(change: dict[str, str]) -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        answered(await admin.post("/v1/acls", json={"acls": [ACL | change]}), 400)
        assert answered(await admin.get("/v1/acls"))["total"] == 0


async def test_permissions_protect_nothing_without_authentication() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.post("/v1/acls", json={"acls": [ACL]}), 409)
        answered(await http.post("/v1/acls/delete", json={"name": "orders"}), 409)


async def test_quotas() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        quota = {"user": "ann", "rates": {"producer_byte_rate": 1000}}
        answered(await http.put("/v1/quotas", json=quota))
        answered(
            await http.put("/v1/quotas", json={"client_default": True, "rates": {"request_percentage": 5}})
        )
        found = answered(await http.get("/v1/quotas"))["items"]
        by_user: dict[Any, Any] = {each["user"]: each for each in found}
        assert by_user["ann"]["rates"] == {
            "producer_byte_rate": 1000.0,
            "consumer_byte_rate": None,
            "request_percentage": None,
        }
        assert (by_user[None]["client_default"], by_user[None]["client"]) == (True, None)
        answered(await http.put("/v1/quotas", json={"user": "ann", "rates": {}}))
        assert answered(await http.get("/v1/quotas"))["total"] == 1
        wrong_ones: tuple[dict[str, Any], ...] = (
            {"rates": {}},
            {"user": "ann", "user_default": True, "rates": {}},
            {"user": "ann", "rates": {"producer_byte_rate": 0}},
        )
        for wrong in wrong_ones:
            answered(await http.put("/v1/quotas", json=wrong), 400)


async def test_changes_are_audited_and_the_tail_is_shown(tmp_path: Path) -> None:
    async with AsyncBroker(users=USERS, data=tmp_path) as broker, client(broker, "admin") as admin:
        answered(await admin.put("/v1/users/bob", json={"password": "very secret"}))
        answered(await admin.put("/v1/quotas", json={"user": "bob", "rates": {"consumer_byte_rate": 5}}))
        tail = answered(await admin.get("/v1/audit?limit=3"))
        assert (tail["enabled"], len(tail["entries"])) == (True, 3)
        newest = tail["entries"][0]
        assert (newest["action"], newest["principal"]) == ("alter-quota", "User:admin")
        assert "very secret" not in (await admin.get("/v1/audit")).text
        with (tmp_path / "audit.log").open("a") as file:
            file.write("torn\n" + "x" * 2_000_000 + "\n")
        assert answered(await admin.get("/v1/audit"))["entries"] == []


async def test_without_an_audit_log() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        assert answered(await http.get("/v1/audit")) == {"enabled": False, "entries": []}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "users", None),
        ("PUT", "users/ann", {"password": "x"}),
        ("DELETE", "users/admin", None),
        ("GET", "acls", None),
        ("POST", "acls", {"acls": [ACL]}),
        ("POST", "acls/delete", {"name": "x"}),
        ("GET", "quotas", None),
        ("PUT", "quotas", {"user": "ann", "rates": {}}),
        ("GET", "settings", None),
        ("GET", "audit", None),
        ("GET", "disk", None),
    ],
)
async def test_only_administrators(method: str, path: str, body: Any) -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "ann") as ann:
        answered(await ann.request(method, f"/v1/{path}", json=body), 403)


@pytest.mark.parametrize(
    ("changed", "method", "path", "body", "action"),
    [
        ("users.replace", "PUT", "users/bob", {"password": "x"}, "set-credential"),
        ("users.replace", "DELETE", "users/ann", None, "delete-credential"),
        ("acls._storage.commit", "POST", "acls", {"acls": [ACL]}, "create-acl"),
        ("acls._storage.commit", "POST", "acls/delete", {"name": "kept"}, "delete-acl"),
        ("quotas._change", "PUT", "quotas", {"user": "ann", "rates": {}}, "alter-quota"),
    ],
)
async def test_a_change_is_audited_before_it_is_made(
    changed: str, method: str, path: str, body: Any, action: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """A client that leaves while the change is under way cannot prevent the entry."""
    async with AsyncBroker(users=USERS, data=tmp_path) as broker, client(broker, "admin") as admin:
        access = broker.app.broker.access
        kept = Acl(kind=Kind.TOPIC, name="kept", principal="User:ann", operation=Operation.READ)
        await access.acls.add([kept])
        begun, ended, noted = asyncio.Event(), asyncio.Event(), []

        async def change(*_: Any) -> None:
            noted.append(access.audit._last)
            begun.set()
            await ended.wait()

        before = access.audit._last
        *owners, name = changed.split(".")
        with monkeypatch.context() as patch:
            patch.setattr(reduce(getattr, owners, access), name, change)
            asking = asyncio.create_task(admin.request(method, f"/v1/{path}", json=body))
            await asyncio.wait_for(begun.wait(), 10)
            asking.cancel()
            ended.set()
        assert noted[0] == before + 2  # the first entry is that of the permission
        await access.audit.written(noted[0])
        assert f'"{action}"' in (tmp_path / "audit.log").read_text()
