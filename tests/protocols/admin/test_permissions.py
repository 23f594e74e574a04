"""RabbitMQ's permissions, which are ACLs: one virtual host does not change what is allowed in another one."""

from typing import Any

import httpx
import pytest

from posthouse.broker.access.acls import Acl, Pattern
from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.admin.management.permission_patterns import VirtualHost
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client

_NOTHING = {"configure": "", "write": "", "read": ""}


async def _permit(http: httpx.AsyncClient, vhost: str, **patterns: str) -> httpx.Response:
    return await http.put(f"/api/permissions/{vhost}/ann", json=_NOTHING | patterns)


async def _allowed(http: httpx.AsyncClient) -> dict[str, Any]:
    views = answered(await http.get("/api/users/ann/permissions"))
    return {view["vhost"]: {word: view[word] for word in _NOTHING} for view in views}


async def test_everything_of_the_only_virtual_host() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        answered(await _permit(admin, "%2F", read=".*", configure=".*"), 201)
        assert await _allowed(admin) == {"/": _NOTHING | {"read": ".*", "configure": ".*"}}
        answered(await _permit(admin, "%2F", read="^mine$"), 204)
        assert await _allowed(admin) == {"/": _NOTHING | {"read": "^mine$"}}
        answered(await admin.delete("/api/permissions/%2F/ann"), 204)
        assert answered(await admin.get("/v1/acls"))["total"] == 0


@pytest.mark.parametrize("pattern", [".*", "^ord.*", "^x", "^orders", "^orders !$"])
async def test_a_pattern_that_would_reach_other_virtual_hosts_is_refused(pattern: str) -> None:
    async with (
        AsyncBroker(users=USERS, namespaces=("orders",)) as broker,
        client(broker, "admin") as admin,
    ):
        refused = answered(await _permit(admin, "%2F", read=pattern), 400)
        assert "would reach vhost 'orders', too" in refused["reason"]
        assert answered(await admin.get("/v1/acls"))["total"] == 0


async def test_virtual_hosts_do_not_change_the_permissions_of_others() -> None:
    async with (
        AsyncBroker(users=USERS, namespaces=("a", "ab")) as broker,
        client(broker, "admin") as admin,
    ):
        everything = dict.fromkeys(_NOTHING, ".*")
        answered(await _permit(admin, "%2F", read="^mails.*"), 201)
        answered(await _permit(admin, "a", **everything), 201)
        answered(await _permit(admin, "ab", write="^my q$", read="^q$"), 201)
        answered(await admin.delete("/api/permissions/%2F/ann"), 204)
        assert await _allowed(admin) == {"a": everything, "ab": _NOTHING | {"read": "^q$"}}
        answered(await admin.delete("/api/permissions/a/ann"), 204)
        kept = answered(await admin.get("/v1/acls"))["items"]
        assert sorted(acl["operation"] for acl in kept) == ["read", "write"]
        answered(await admin.delete("/api/permissions/ab/ann"), 204)
        assert answered(await admin.get("/v1/acls"))["total"] == 0


async def test_a_wider_acl_is_neither_removed_nor_replaced() -> None:
    async with (
        AsyncBroker(users=USERS, namespaces=("other",)) as broker,
        client(broker, "admin") as admin,
    ):
        acl = {"principal": "User:ann", "operation": "read", "kind": "topic", "name": "*"}
        answered(await admin.post("/v1/acls", json={"acls": [acl]}), 201)
        everything = _NOTHING | {"read": ".*"}
        assert await _allowed(admin) == {"/": everything, "other": everything}
        for answer in (
            await admin.delete("/api/permissions/other/ann"),
            await admin.delete("/api/permissions/%2F/ann"),
            await _permit(admin, "other", read="^q$"),
        ):
            assert "read on topic:*; change it by /v1/acls" in answered(answer, 400)["reason"]
        assert answered(await admin.get("/v1/acls"))["total"] == 1


@pytest.mark.parametrize(
    ("name", "pattern", "reached"),
    [
        ("*", Pattern.LITERAL, ["/", "a", "ab"]),
        ("a", Pattern.LITERAL, ["/"]),
        ("a", Pattern.PREFIXED, ["/", "a", "ab"]),
        ("ab", Pattern.PREFIXED, ["/", "ab"]),
        ("a..", Pattern.PREFIXED, ["a"]),
        ("a..q", Pattern.LITERAL, ["a"]),
        ("ab..q", Pattern.PREFIXED, ["ab"]),
        ("x.a-q.0123456789ab", Pattern.LITERAL, ["a"]),
        ("x.ab.0123456789ab", Pattern.LITERAL, ["ab"]),
        ("x.q.0123456789ab", Pattern.LITERAL, ["/"]),
        ("x.", Pattern.PREFIXED, ["/", "a", "ab"]),
    ],
)
def test_virtual_hosts_that_an_acl_reaches(name: str, pattern: Pattern, reached: list[str]) -> None:
    acl = Acl(kind=Kind.TOPIC, name=name, pattern=pattern, principal="User:ann", operation=Operation.READ)
    everyone = ["/", "a", "ab"]
    vhosts = [
        VirtualHost(name=each, others=[other for other in everyone if other != each]) for each in everyone
    ]
    assert [each.name for each in vhosts if each.is_reached_by(acl)] == reached
    for vhost in vhosts:
        assert vhost.others_reached_by(acl) == [each for each in reached if each != vhost.name]
