"""Logins of gRPC's clients: every call is signed, and its connection belongs to one user."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.rocketmq.grpc.logins import AUTHORIZATION, DATE_TIME
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType, TransactionResolution
from posthouse.protocols.rocketmq.grpc.messages.service import (
    HeartbeatRequest,
    HeartbeatResponse,
    QueryRouteRequest,
)
from posthouse.testing import AsyncBroker
from tests.broker.due_checks import make_due
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient
from tests.protocols.rocketmq.grpc.signed_calls import (
    USERS,
    SignedClient,
    add_keys,
    allow,
    of,
    secured,
    signed,
)

RIGHT = signed("admin-key", USERS["admin"])
SIGNATURE = RIGHT[AUTHORIZATION]
WRONG: dict[str, dict[str, str]] = {
    "only a date": {DATE_TIME: RIGHT[DATE_TIME]},
    "another's key": signed("ann-key", USERS["admin"]),
    "another date": RIGHT | {DATE_TIME: "20261119T203001Z"},
    "no date": {AUTHORIZATION: SIGNATURE},
    "a cut signature": RIGHT | {AUTHORIZATION: SIGNATURE[:-1]},
    "a longer signature": RIGHT | {AUTHORIZATION: SIGNATURE + "0"},
    "no hexadecimals": RIGHT | {AUTHORIZATION: SIGNATURE[:-1] + "g"},
    "no key": signed("", USERS["admin"]),
    "a key without an end": signed("x" * 300, USERS["admin"]),
    "something else is signed": RIGHT | {AUTHORIZATION: SIGNATURE.replace(DATE_TIME, "x-mq-request-id")},
    "another mechanism": RIGHT | {AUTHORIZATION: "Basic YWRtaW46eA=="},
    "empty": RIGHT | {AUTHORIZATION: ""},
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AsyncBroker]:
    async with secured(tmp_path) as running:
        await add_keys(running)
        yield running


@pytest.fixture
async def admin(broker: AsyncBroker) -> AsyncIterator[SignedClient]:
    async with of(broker, "admin") as connected:
        yield connected


def audited(tmp_path: Path, action: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    return [each for each in lines if each["action"] == action and each["protocol"] == "rocketmq_grpc"]


async def logged(tmp_path: Path, action: str, count: int) -> list[dict[str, Any]]:
    """Refusals and logins are written once a second."""
    async with asyncio.timeout(DEADLINE):
        while len(found := audited(tmp_path, action)) < count:
            await asyncio.sleep(0.05)
    return found


async def beat(client: MessagingClient) -> tuple[int, str]:
    status = (await client.call(HeartbeatRequest(), HeartbeatResponse)).status
    assert status is not None
    return int(status.code), status.message


async def test_wrong_signatures(tmp_path: Path) -> None:
    async with secured(offender_wait_seconds=0) as broker:
        await add_keys(broker)
        async with of(broker, "admin") as client:
            for name, headers in WRONG.items():
                client.says(headers)
                code, message = await beat(client)
                assert code == Code.UNAUTHORIZED, name
                assert "a wrong access key or signature" in message or "have to be signed" in message
            client.says(RIGHT)
            assert (await beat(client))[0] == Code.OK


@pytest.mark.parametrize(
    "text",
    [
        SIGNATURE,
        SIGNATURE[:-40] + SIGNATURE[-40:].upper(),
        SIGNATURE.replace("admin-key", "admin-key/region/RocketMQ"),
        SIGNATURE.replace(", ", ","),
    ],
)
async def test_signatures_as_clients_write_them(broker: AsyncBroker, admin: SignedClient, text: str) -> None:
    admin.says(RIGHT | {AUTHORIZATION: text})
    assert (await beat(admin))[0] == Code.OK
    [info] = [each.info for each in broker.app.connections]
    assert (info.user, info.client, info.protocol) == ("admin", "admin", "rocketmq_grpc")


async def test_clients_in_any_time_zone(broker: AsyncBroker, admin: SignedClient) -> None:
    """They write local time as if it was UTC, each in its own way."""
    for date in ("19990101T000000Z", "20991231T235959Z", "2026-11-19 20:30:00"):
        admin.says(signed("admin-key", USERS["admin"], date))
        assert (await beat(admin))[0] == Code.OK
    access = broker.app.broker.access
    assert access.logins["rocketmq_grpc"] == 1, "one login for each key of a connection"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_wrong_signatures_are_offences(broker: AsyncBroker, is_stream: bool) -> None:
    """Who guesses has to wait, whether it is by a call with one answer or with many."""
    async with SignedClient(broker.address("rocketmq_grpc"), "admin", secret="guess again") as client:
        for _ in range(11):
            if is_stream:
                assert await client.receive_code("t") == Code.UNAUTHORIZED
            else:
                assert (await beat(client))[0] == Code.UNAUTHORIZED
        [connection] = broker.app.connections
        assert connection.info.is_paused


async def test_calls_without_a_signature_are_none(broker: AsyncBroker) -> None:
    """Their client does not know that it has to log in."""
    async with SignedClient(broker.address("rocketmq_grpc"), "ann") as client:
        client.says({})
        for _ in range(30):
            assert (await beat(client))[0] == Code.UNAUTHORIZED
        [connection] = broker.app.connections
        assert not connection.info.is_paused


async def test_a_connection_belongs_to_one_user(broker: AsyncBroker) -> None:
    await broker.app.broker.access.access_keys.add("ann", "ann-too", secret="another secret")
    async with of(broker, "ann") as client:
        assert (await beat(client))[0] == Code.OK
        client.says(signed("ann-too", "another secret"))
        assert (await beat(client))[0] == Code.OK
        client.says(RIGHT)
        assert await beat(client) == (Code.UNAUTHORIZED, "this connection belongs to another user")
        sessions = broker.app.broker.access.sessions
        assert (sessions.count("admin"), sessions.count("ann")) == (0, 1)


async def test_connections_of_a_user_are_limited() -> None:
    async with secured(max_connections_per_user=1) as broker:
        await add_keys(broker)
        async with of(broker, "ann") as one, of(broker, "ann") as other:
            assert (await beat(one))[0] == Code.OK
            code, message = await beat(other)
            assert code == Code.UNAUTHORIZED
            assert "'ann' has 1 connections, the limit" in message


@pytest.mark.parametrize("change", ["key", "user", "password"])
async def test_what_ends_a_connection(broker: AsyncBroker, change: str) -> None:
    """Calls that wait end with it, and another connection is refused unless the key is still good."""
    access = broker.app.broker.access
    await allow(broker, "ann", (Operation.READ, Kind.GROUP, "group"), (Operation.READ, Kind.TOPIC, "t"))
    async with of(broker, "admin") as admin, of(broker, "ann") as ann:
        await admin.send("t")
        assert len(await ann.receive("t")) == 1
        async with ann.telemetry() as stream:
            await stream.settings(ann.subscription("group", t="*"))
            waiting = asyncio.ensure_future(ann.receive("t", wait=60))
            if change == "key":
                await access.access_keys.remove("ann", "ann-key")
            elif change == "user":
                await access.users.delete("ann")
            else:
                await access.users.set_password("ann", "another one", iterations=4096)
            assert await stream.end() is not grpc.StatusCode.OK
            with pytest.raises(grpc.aio.AioRpcError):
                await waiting
        assert (await beat(admin))[0] == Code.OK
    async with of(broker, "ann") as again:
        assert (await beat(again))[0] == (Code.OK if change == "password" else Code.UNAUTHORIZED)


async def test_connections_without_a_login_are_not_proven(broker: AsyncBroker) -> None:
    """They are closed after ten seconds: see `gate`."""
    unproven = broker.app._gate._unproven
    async with SignedClient(broker.address("rocketmq_grpc"), "ann") as client:
        client.says({})
        await beat(client)
        assert len(unproven) == 1
        client.says(signed("ann-key", USERS["ann"]))
        await beat(client)
        assert len(unproven) == 0


async def test_half_messages_are_for_those_who_may_write(broker: AsyncBroker, admin: SignedClient) -> None:
    """Whoever says that it sends to the topic: only they are asked, see the message, and can decide it."""
    [entry] = (await admin.send("t", b"secret", message_type=MessageType.TRANSACTION)).entries
    half = broker.app.broker.half_messages

    async def check() -> None:
        make_due(half)
        await half.check()

    commit = TransactionResolution.COMMIT
    async with of(broker, "ann") as ann, ann.telemetry() as stream:
        await stream.settings(ann.publishing("t"))
        await check()
        assert await ann.end_transaction("t", entry.transaction_id, commit) == Code.FORBIDDEN
        await allow(broker, "ann", (Operation.WRITE, Kind.TOPIC, "other"))
        await admin.send("other")
        assert await ann.end_transaction("other", entry.transaction_id, commit) == Code.INVALID_TRANSACTION_ID
        await allow(broker, "ann", (Operation.WRITE, Kind.TOPIC, "t"))
        await check()
        asked = (await stream.command()).recover_orphaned_transaction_command
        assert asked is not None and asked.message is not None
        assert (asked.message.body, asked.transaction_id) == (b"secret", entry.transaction_id)
        assert await ann.end_transaction("t", entry.transaction_id, commit) == Code.OK


async def test_the_audit_log(broker: AsyncBroker, admin: SignedClient, tmp_path: Path) -> None:
    await admin.send("new")
    [created] = audited(tmp_path, "create")  # it was written before the answer
    assert (created["principal"], created["resource"]) == ("User:admin", "topic:new")
    [login] = await logged(tmp_path, "login", 1)
    assert (login["principal"], login["resource"]) == ("User:admin", "access-key admin-key")
    assert login["allowed"]
    async with of(broker, "ann") as ann:
        assert await ann.refused("new") == Code.FORBIDDEN
        assert await ann.receive_code("new", "g") == Code.FORBIDDEN
        ann.says(signed("ann-key", "another secret"))
        assert await ann.refused("new") == Code.UNAUTHORIZED
    [refused] = await logged(tmp_path, "write", 1)
    assert (refused["principal"], refused["resource"], refused["allowed"]) == ("User:ann", "topic:new", False)
    [refused] = await logged(tmp_path, "read", 1)
    assert (refused["principal"], refused["resource"], refused["allowed"]) == ("User:ann", "group:g", False)
    failed = [each for each in await logged(tmp_path, "login", 3) if not each["allowed"]]
    assert [(each["principal"], each["resource"]) for each in failed] == [("User:ann-key", "access-key")]
    text = (tmp_path / "audit.log").read_text()
    assert not any(secret in text for secret in USERS.values())
    assert SIGNATURE[-40:] not in text


async def test_a_producer_that_asks_for_routes_is_not_refused(broker: AsyncBroker, tmp_path: Path) -> None:
    """It asks every 30 s: an audit log would have a line for the permission to read that it does not need."""
    await allow(broker, "ann", (Operation.WRITE, Kind.TOPIC, "t"), (Operation.CREATE, Kind.TOPIC, "t"))
    async with of(broker, "ann") as ann:
        await ann.send("t")
        assert await ann.code(QueryRouteRequest(topic=ann.resource("t"))) == Code.OK
        assert await ann.code(QueryRouteRequest(topic=ann.resource("u"))) == Code.FORBIDDEN
    [refused] = await logged(tmp_path, "read", 1)
    assert refused["resource"] == "topic:u"


async def test_no_logins_are_required() -> None:
    """Then signatures are not looked at, as clients may have keys all the same."""
    async with AsyncBroker(rocketmq_grpc=ANY_PORT) as broker, of(broker, "ann") as client:
        assert (await beat(client))[0] == Code.OK
        [connection] = broker.app.connections
        assert connection.info.user is None
