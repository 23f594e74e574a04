"""The admin front end as an HTTP server: requests, errors, logins, limits."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.listener_settings import Address
from posthouse.testing import AsyncBroker

USERS = {"admin": "secret", "ann": "password"}


@asynccontextmanager
async def client(
    broker: AsyncBroker, user: str | None = None, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    auth = None if user is None else (user, USERS[user])
    async with httpx.AsyncClient(base_url=f"http://{broker.admin}", auth=auth, **options) as http:
        yield http


async def raw(broker: AsyncBroker, request: bytes) -> bytes:
    where = Address.parse(broker.admin)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_health() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        live, ready = await http.get("/health/live"), await http.get("/health/ready")
        assert (live.status_code, live.json()) == (200, {"status": "ok"})
        assert (ready.status_code, ready.json()) == (200, {"status": "ok", "reasons": []})


async def test_a_closed_listener_is_not_ready() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        [kafka] = [each for each in broker.app._served if each.name == "kafka"]
        kafka.listener.close()
        ready = await http.get("/health/ready")
        assert ready.status_code == 503
        assert ready.json() == {"status": "unready", "reasons": ["listener kafka is not open"]}


async def test_a_data_directory_that_is_gone_is_not_ready(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path / "data") as broker, client(broker) as http:
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        ready = await http.get("/health/ready")
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        assert ready.status_code == 503
        assert ready.json()["reasons"][0].startswith("storage takes no writes: ")


def test_handlers_are_imported_with_the_first_request() -> None:
    program = """
import asyncio, sys
from posthouse.testing import AsyncBroker
async def main():
    async with AsyncBroker() as broker:
        assert "posthouse.protocols.admin.endpoints" not in sys.modules
        host, _, port = broker.admin.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health/live HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n")
        assert b" 200 " in await reader.readline()
        writer.close()
        assert "posthouse.protocols.admin.endpoints" in sys.modules
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_topics_are_created_listed_described_and_deleted() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        created = await http.post("/v1/topics", json={"name": "orders", "partitions": 2})
        assert created.status_code == 201
        assert [each["partition"] for each in created.json()["partitions"]] == [0, 1]
        assert (await http.post("/v1/topics", json={"name": "orders"})).status_code == 409
        [listed] = (await http.get("/v1/topics")).json()["items"]
        assert (listed["name"], listed["partitions"], listed["records"]) == ("orders", 2, 0)
        assert (await http.delete("/v1/topics/orders")).status_code == 204
        gone = await http.get("/v1/topics/orders")
        assert (gone.status_code, gone.json()["detail"]) == (404, "there is no topic 'orders'")


async def test_partitions_come_in_pages() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await http.post("/v1/topics", json={"name": "t", "partitions": 25})
        seen, after = [], 0
        while after is not None:
            found = (await http.get("/v1/topics/t", params={"limit": 10, "after": after})).json()
            assert found["partitions_total"] == 25
            assert len(found["partitions"]) <= 10
            seen += [each["partition"] for each in found["partitions"]]
            after = found["next"]
        assert seen == list(range(25))


async def test_pages() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        for name in "abcde":
            await http.post("/v1/topics", json={"name": name, "partitions": 1})
        seen, after = [], ""
        while after is not None:
            found = (await http.get("/v1/topics", params={"limit": 2, "after": after})).json()
            assert found["total"] == 5
            assert len(found["items"]) <= 2
            seen += [each["name"] for each in found["items"]]
            after = found["next"]
        assert seen == list("abcde")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/nothing", None, 404, "there is nothing at /nothing"),
        ("PATCH", "/v1/topics", None, 405, "use GET, HEAD, POST"),
        ("GET", "/v1/topics?limit=0", None, 400, "limit"),
        ("GET", "/v1/topics?limit=many", None, 400, "limit"),
        ("GET", "/v1/topics?colour=red", None, 400, "colour"),
        ("GET", "/v1/topics/x?topic=y", None, 400, "belongs to the path"),
        ("POST", "/v1/topics", b"{", 400, "not valid JSON"),
        ("POST", "/v1/topics", b"[" * 100_000, 400, "the body is wrong"),
        ("POST", "/v1/topics", b'{"name": 7}', 400, "name"),
        ("POST", "/v1/topics", b'{"name": "a", "partitions": 0}', 400, "partitions"),
        ("POST", "/v1/topics", b'{"name": "not a name"}', 400, "only letters, digits"),
        ("POST", "/v1/topics", b'{"name": "a", "settings": {"retention.ms": "abc"}}', 400, "retention.ms"),
        ("GET", "/v1/topics/%ff", None, 400, "cannot be read"),
    ],
    ids=lambda each: each[:30] if isinstance(each, bytes) else str(each),
)
async def test_bad_requests_are_problems(
    method: str, path: str, body: bytes | None, status: int, says: str
) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        headers = {} if body is None else {"content-type": "application/json"}
        answer = await http.request(method, path, content=body, headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (answer.status_code, problem["status"]) == (status, status)
        assert says in problem["detail"]


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x00\x00\x12\x00\x12\x00\x04",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["binary", "no host", "length", "long", "chunk"],
)
async def test_what_is_no_http_is_answered_and_closed(request_: bytes) -> None:
    async with AsyncBroker() as broker:
        answer = await raw(broker, request_)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert len(broker.app._gate._offences) == 1


async def test_a_client_that_sends_too_much_hears_so() -> None:
    async with AsyncBroker() as broker:
        where = Address.parse(broker.admin)
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 30000000\r\n\r\n")
        writer.write(b" " * 30_000_000)
        assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_requests_one_after_the_other_on_one_connection() -> None:
    async with AsyncBroker() as broker:
        request = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n"
        answer = await raw(broker, request + b"\r\n" + request + b"connection: close\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200 ") == 2


async def test_head_has_no_body() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answer = await http.head("/v1/topics")
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["content-length"]) > 0


async def test_a_body_may_be_announced_first() -> None:
    async with AsyncBroker() as broker:
        where = Address.parse(broker.admin)
        reader, writer = await asyncio.open_connection(where.host, where.port)
        body = json.dumps({"name": "orders"}).encode()
        writer.write(
            b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\nconnection: close\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        writer.write(body)
        assert b"HTTP/1.1 201 " in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"host": "evil.example"}, 421),
        ({}, 201),
    ],
)
async def test_pages_of_other_sites_change_nothing(headers: dict[str, str], status: int) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answer = await http.post("/v1/topics", json={"name": "orders"}, headers=headers)
        assert answer.status_code == status
        assert ("orders" in [topic.name for topic in broker.app.broker.topics]) == (status == 201)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/overview", 200, "OK"),
        ("/metrics", 200, "OK"),
        ("/api/overview", 200, "OK"),
        ("/health/ready", 200, "OK"),
        ("/nothing", 404, "Not Found"),
        (f"/{'x' * 50_000}", 431, "Request Header Fields Too Large"),
    ],
    ids=lambda each: str(each)[:20],
)
async def test_security_headers(path: str, status: int, words: str) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answer = await http.get(path)
        assert (answer.status_code, answer.reason_phrase) == (status, words)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/queues/%2F/q", {}, 201),
        ("/api/queues/%2F/q", {"content-type": "text/plain"}, 415),
        ("/api/queues/%2F/q", {"content-type": ""}, 415),
        ("/api/queues/%2F/q", {"origin": "null"}, 401),
        ("/api/queues/%2F/q", {"sec-fetch-site": "same-site"}, 415),
        ("/v1/quotas", {}, 415),
    ],
    ids=str,
)
async def test_a_body_without_a_type_is_for_clients_of_rabbitmq(
    path: str, headers: dict[str, str], status: int
) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answer = await http.put(path, content=b"{}", headers=headers)
        assert answer.status_code == status


async def test_a_connection_that_is_answered_is_not_paused() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        [own] = (await http.get("/v1/connections")).json()["items"]
        assert (own["protocol"], own["paused"]) == ("http", False)
        assert 'posthouse_paused_connections{listener="admin"} 0\n' in (await http.get("/metrics")).text


async def test_nothing_without_a_login_but_health() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker) as http:
        for path in ("/v1/topics", "/v1/overview", "/nothing"):
            answer = await http.get(path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic ")
        assert (await http.get("/health/ready")).json() == {"status": "ok"}
        wrong = await http.get("/v1/topics", auth=("ann", "wrong"))
        assert wrong.status_code == 401
        assert (await http.get("/v1/topics", auth=("ann", "password"))).status_code == 200


async def test_a_user_sees_and_does_what_the_acls_allow() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        for name in ("hers", "others"):
            await admin.post("/v1/topics", json={"name": name})
        await broker.app.broker.access.acls.add([_allow("ann", Operation.READ, "hers")])
        assert [each["name"] for each in (await ann.get("/v1/topics")).json()["items"]] == ["hers"]
        assert (await ann.get("/v1/topics/others")).status_code == 403
        refused = await ann.delete("/v1/topics/hers")
        assert refused.status_code == 403
        assert refused.json()["detail"] == (
            "you may not delete topic 'hers'; ask an administrator for "
            "'posthouse acl allow YOU delete topic hers'"
        )
        hidden = await ann.get("/v1/settings")
        assert hidden.status_code == 403
        assert hidden.json()["detail"] == (
            "you may not see the settings of the broker; ask an administrator for "
            "'posthouse acl allow YOU describe-configs cluster'"
        )


async def test_users_may_change_from_request_to_request() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker) as http:
        for user, status in (("admin", 200), ("ann", 403), ("admin", 200)):
            answer = await http.get("/v1/overview", auth=(user, USERS[user]))
            assert answer.status_code == status


async def test_another_password_ends_the_connection() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "ann") as http:
        assert (await http.get("/v1/topics")).status_code == 200
        await broker.app.broker.access.users.set_password("ann", "another")
        assert (await http.get("/v1/topics")).status_code == 401


async def test_a_body_before_the_login_is_small() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker) as http:
        answer = await http.post(
            "/v1/topics", content=b" " * 100_000, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413


def _allow(user: str, operation: Operation, topic: str) -> Acl:
    return Acl(kind=Kind.TOPIC, name=topic, principal=f"User:{user}", operation=operation)


async def test_a_change_is_finished_and_audited_when_the_client_is_gone(tmp_path: Path) -> None:
    """Over TLS, where a reset is noticed while a request is answered."""
    async with AsyncBroker(users=USERS, data=tmp_path) as broker, client(broker, "admin") as http:
        await http.get("/v1/overview")
        topics = broker.app.broker.topics
        begun, go_on = asyncio.Event(), asyncio.Event()
        create = topics._create

        async def slow(*arguments: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await create(*arguments)

        topics._create = slow  # type: ignore[assignment, method-assign]
        asked = asyncio.create_task(http.post("/v1/topics", json={"name": "orders"}))
        await begun.wait()
        for connection in broker.app.connections:
            connection.abort()
        with pytest.raises(httpx.HTTPError):
            await asked
        go_on.set()
        while topics.find("orders") is None:
            await asyncio.sleep(0.001)


async def test_very_many_chunks() -> None:
    async with AsyncBroker() as broker:
        head = b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        answer = await raw(broker, head + b"1\r\n \r\n" * 100_000)
        assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_large_body_is_for_few_calls_only() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        body = b'{"name": "a"' + b" " * 300_000 + b"}"
        answer = await http.post("/v1/topics", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 413


async def test_guessing_passwords_takes_ever_longer() -> None:
    async with AsyncBroker(users=USERS, offender_wait_seconds=0.3) as broker, client(broker) as http:
        for _ in range(12):  # ten are free
            assert (await http.get("/v1/topics", auth=("ann", "wrong"))).status_code == 401
        begun = asyncio.get_running_loop().time()
        assert (await http.get("/health/live")).status_code == 200
        assert asyncio.get_running_loop().time() - begun > 0.2


async def test_a_request_without_credentials_is_no_offence() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker) as http:
        assert (await http.get("/v1/topics")).status_code == 401
        assert not len(broker.app._gate._offences)
