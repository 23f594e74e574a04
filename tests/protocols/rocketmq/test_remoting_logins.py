"""Logins of remoting's clients: every request is signed, and its user's permissions count."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.rocketmq.codec.codes import (
    PRODUCER_GROUP,
    TRANSACTION_PREPARED,
    UNIQUE_KEY_QUERY,
    RequestCode,
    ResponseCode,
)
from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.message_ids import parse_message_id
from posthouse.protocols.rocketmq.codec.stored_messages import decode_stored_messages
from posthouse.testing import AsyncBroker
from tests.broker.due_checks import make_due
from tests.protocols.rocketmq.conftest import ROCKETMQ
from tests.protocols.rocketmq.remoting_client import DEADLINE, client_of, group
from tests.protocols.rocketmq.signed_client import SignedClient, signed, signed_client_of

USERS = {"admin": "admin's password", "ann": "ann's password", "ben": "ben's password"}
"""`ann` has the access key `ann-key`, and so on; their secrets are the passwords."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AsyncBroker]:
    """With logins."""
    async with AsyncBroker(rocketmq=ROCKETMQ, users=USERS, data=tmp_path) as running:
        for user, secret in USERS.items():
            await running.app.broker.access.access_keys.add(user, f"{user}-key", secret=secret)
        yield running


@pytest.fixture
async def admin(broker: AsyncBroker) -> AsyncIterator[SignedClient]:
    async with of(broker, "admin") as connected:
        yield connected


@pytest.fixture
async def ann(broker: AsyncBroker) -> AsyncIterator[SignedClient]:
    async with of(broker, "ann") as connected:
        yield connected


def of(broker: AsyncBroker, user: str, serialization: Serialization = Serialization.JSON) -> Any:
    return signed_client_of(broker, f"{user}-key", USERS[user], serialization)


async def allow(broker: AsyncBroker, user: str, operation: Operation, kind: Kind, name: str) -> None:
    acl = Acl(principal=f"User:{user}", operation=operation, kind=kind, name=name)
    await broker.app.broker.access.acls.add([acl])


def audited(tmp_path: Path, action: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    return [each for each in lines if each["action"] == action and each["protocol"] == "rocketmq"]


async def logged(tmp_path: Path, action: str, count: int) -> list[dict[str, Any]]:
    """Refusals and logins are written once a second."""
    async with asyncio.timeout(DEADLINE):
        while len(found := audited(tmp_path, action)) < count:
            await asyncio.sleep(0.05)
    return found


def assert_refused(answer: Command, remark: str) -> None:
    assert answer.code == ResponseCode.NO_PERMISSION, answer
    assert remark in (answer.remark or ""), answer.remark


@pytest.mark.parametrize("code", [105, 310, 34, 11, 38, 14, 15, 35, 37, 41, 999])
async def test_requests_without_a_signature(broker: AsyncBroker, code: int) -> None:
    async with client_of(broker) as client:
        for fields in ({"topic": "t"}, {"AccessKey": "admin-key"}, {"Signature": "eA=="}):
            assert_refused(await client.request(code, fields), "requests have to be signed here")
    assert list(broker.app.broker.topics) == []


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_signed_requests(broker: AsyncBroker, serialization: Serialization) -> None:
    async with of(broker, "admin", serialization) as client:
        assert (await client.send("t", b"v", properties={"KEYS": "ä €", "TAGS": "𝄞"})).code == 0
        [message] = await client.messages("t")
        assert message.body == b"v"
        assert (await client.beat("one", group("g", t="*"))).code == 0
        assert (await client.request(RequestCode.UNREGISTER_CLIENT, {"clientID": "one"})).code == 0
        [info] = [each.info for each in broker.app.connections]
        assert info.user == "admin"


async def test_a_token_is_signed_as_any_field(admin: SignedClient) -> None:
    fields = admin.send_fields("t", SecurityToken="temporary")
    assert (await admin.request(RequestCode.SEND_MESSAGE_V2, fields, b"v")).code == 0


async def test_signatures_of_something_else() -> None:
    unhurried = AsyncBroker(rocketmq=ROCKETMQ, users=USERS, offender_wait_seconds=0)
    async with unhurried as broker, client_of(broker) as client:
        await broker.app.broker.access.access_keys.add("admin", "admin-key", secret=USERS["admin"])
        texts = {name: str(value) for name, value in client.send_fields("t").items()}
        right = signed(texts, b"body", "admin-key", USERS["admin"])
        wrong: list[tuple[dict[str, str], bytes]] = [
            (right, b"bodY"),
            ({**right, "b": "u"}, b"body"),
            ({**right, "more": "x"}, b"body"),
            ({name: value for name, value in right.items() if name != "g"}, b"body"),
            ({**right, "AccessKey": "ann-key"}, b"body"),
            ({**right, "AccessKey": ""}, b"body"),
            ({**right, "AccessKey": "x" * 10_000}, b"body"),
            (signed(texts, b"body", "admin-key", USERS["ann"]), b"body"),
            (signed(texts, b"body", "nobody", USERS["admin"]), b"body"),
        ]
        for fields, body in wrong:
            answer = await client.request(RequestCode.SEND_MESSAGE_V2, fields, body)
            assert_refused(answer, "a wrong access key or signature")
        for text in ("", "*", "ä", right["Signature"][:-1], "A" * 101):
            answer = await client.request(RequestCode.SEND_MESSAGE_V2, {**right, "Signature": text}, b"body")
            assert_refused(answer, "signature")
        assert list(broker.app.broker.topics) == []
        assert (await client.request(RequestCode.SEND_MESSAGE_V2, right, b"body")).code == 0
        access = broker.app.broker.access
        assert (access.login_failures["rocketmq"], access.logins["rocketmq"]) == (14, 1)


async def test_wrong_signatures_are_offences(broker: AsyncBroker) -> None:
    """Who guesses has to wait."""
    async with client_of(broker) as client:
        for _ in range(11):
            answer = await client.request(105, {"topic": "t", "AccessKey": "k", "Signature": "eA=="})
            assert_refused(answer, "a wrong access key or signature")
        [connection] = broker.app.connections
        assert connection.info.is_paused


async def test_a_field_that_old_clients_do_not_sign(admin: SignedClient) -> None:
    fields = {"topic": "t"}
    right = signed(fields, b"", "admin-key", USERS["admin"])
    admin.secret = ""
    answer = await admin.request(105, {**right, UNIQUE_KEY_QUERY: "true"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    admin.secret = USERS["admin"]
    answer = await admin.request(105, {"topic": "t", UNIQUE_KEY_QUERY: "true"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_connection_belongs_to_one_user(broker: AsyncBroker, ann: SignedClient) -> None:
    await broker.app.broker.access.access_keys.add("ann", "ann-too", secret="another secret")
    for key, secret in (("ann-key", USERS["ann"]), ("ann-too", "another secret")):
        ann.key, ann.secret = key, secret
        assert_refused(await ann.request(105, {"topic": "t"}), "no permission to describe topic 't'")
    ann.key, ann.secret = "admin-key", USERS["admin"]
    assert_refused(await ann.request(105, {"topic": "t"}), "this connection belongs to another user")
    assert broker.app.broker.access.sessions.count("admin") == 0
    assert broker.app.broker.access.sessions.count("ann") == 1


async def test_connections_of_a_user_are_limited(tmp_path: Path) -> None:
    async with AsyncBroker(rocketmq=ROCKETMQ, users=USERS, max_connections_per_user=1) as broker:
        await broker.app.broker.access.access_keys.add("admin", "admin-key", secret=USERS["admin"])
        async with of(broker, "admin") as one, of(broker, "admin") as other:
            assert (await one.send("t", b"v")).code == 0
            assert_refused(await other.send("t", b"v"), "'admin' has 1 connections, the limit")
        async with of(broker, "admin") as later, asyncio.timeout(DEADLINE):
            while (await later.send("t", b"v")).code:  # the first is about to leave
                await asyncio.sleep(0.01)


async def waiting_pull(broker: AsyncBroker, admin: SignedClient) -> asyncio.Future[Command]:
    """On a connection with a login."""
    await admin.send("t", b"v", d=1)
    waiting = admin.start(RequestCode.PULL_MESSAGE, admin.pull_fields("t", 1, wait_ms=50_000))
    await admin.request(105, {"topic": "t"})
    return waiting


async def test_a_key_is_removed(broker: AsyncBroker, admin: SignedClient) -> None:
    waiting = await waiting_pull(broker, admin)
    await broker.app.broker.access.access_keys.remove("admin", "admin-key")
    await admin.ended()
    assert waiting.exception() is not None
    async with of(broker, "admin") as again:
        assert_refused(await again.send("t", b"v"), "a wrong access key or signature")
    assert len(broker.app.broker.access.key_sessions._by_user) == 0


@pytest.mark.parametrize("change", ["delete", "password"])
async def test_a_user_is_revoked(broker: AsyncBroker, admin: SignedClient, change: str) -> None:
    await waiting_pull(broker, admin)
    users = broker.app.broker.access.users
    if change == "delete":
        await users.delete("admin")
    else:
        await users.set_password("admin", "another", iterations=4096)
    await admin.ended()
    async with of(broker, "admin") as again:
        answer = await again.send("t", b"v")
        assert answer.code == (ResponseCode.NO_PERMISSION if change == "delete" else 0)


async def test_permissions(broker: AsyncBroker, admin: SignedClient, ann: SignedClient) -> None:
    await admin.send("t", b"v", d=1)
    assert_refused(await ann.send("t", b"x"), "no permission to write to topic 't'")
    assert_refused(await ann.pull("t"), "no permission to consume in the group 'group'")
    await allow(broker, "ann", Operation.WRITE, Kind.TOPIC, "t")
    assert (await ann.send("t", b"x")).code == 0
    await allow(broker, "ann", Operation.READ, Kind.GROUP, "group")
    assert_refused(await ann.pull("t"), "no permission to read topic 't'")
    await allow(broker, "ann", Operation.READ, Kind.TOPIC, "t")
    assert [each.body for each in await ann.messages("t")] == [b"v", b"x"]


async def test_whether_a_topic_exists_is_not_told(admin: SignedClient, ann: SignedClient) -> None:
    await admin.send("there", b"v", d=1)
    place: dict[str, str | int] = {"queueId": 0, "queueOffset": 0, "timestamp": 0}
    for code in (105, 29, 30, 31):
        one = await ann.request(code, place | {"topic": "there"})
        other = await ann.request(code, place | {"topic": "gone"})
        assert one.code == other.code == ResponseCode.NO_PERMISSION
        assert (one.remark or "").replace("there", "gone") == other.remark
    one, other = await ann.send("there", b"v"), await ann.send("gone", b"v")
    assert one.code == other.code == ResponseCode.NO_PERMISSION
    assert (one.remark or "").replace("there", "gone") == other.remark


async def test_retries_of_a_group(broker: AsyncBroker, admin: SignedClient, ann: SignedClient) -> None:
    """Clients use its topics without being told to."""
    await admin.send("t", b"v", d=1)
    await allow(broker, "ann", Operation.READ, Kind.GROUP, "g")
    await allow(broker, "ann", Operation.READ, Kind.TOPIC, "t")
    assert (await ann.beat("one", group("g", t="*"))).code == 0
    assert (await ann.request(105, {"topic": "%RETRY%g"})).code == 0
    [message] = await ann.messages("t", consumerGroup="g")
    back: dict[str, str | int] = {
        "group": "g",
        "offset": message.position,
        "originTopic": "t",
        "delayLevel": -1,
    }
    assert (await ann.request(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
    assert (await ann.send("%RETRY%g", b"again", j=1)).code == 0
    assert [each.body for each in await ann.messages("%RETRY%g", consumerGroup="g")] == [b"again"]
    assert_refused(await ann.send("%RETRY%other", b"again"), "no permission to write to topic")
    assert_refused(await ann.send("%DLQ%g", b"again"), "no permission to write to topic")
    assert_refused(await ann.pull("%RETRY%other", consumerGroup="g"), "no permission to read topic")


async def test_half_messages_are_for_those_who_may_write(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient
) -> None:
    properties = {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: "producers"}
    sent = await admin.send("t", b"secret", properties=properties, d=1)
    position = parse_message_id(sent.fields["msgId"]).position
    await ann.beat("one", producers=["producers"])
    half = broker.app.broker.half_messages
    make_due(half)
    await half.check()
    decision: dict[str, str | int] = {
        "producerGroup": "producers",
        "commitLogOffset": position,
        "commitOrRollback": 12,
    }
    for code in (12, 8, 0):
        answer = await ann.request(RequestCode.END_TRANSACTION, decision | {"commitOrRollback": code})
        assert_refused(answer, "no permission to decide half messages for topic 't'")
    assert ann.pushed.empty() and len(half) == 1
    await allow(broker, "ann", Operation.WRITE, Kind.TOPIC, "t")
    make_due(half)
    await half.check()
    async with asyncio.timeout(DEADLINE):
        asked = await ann.pushed.get()
    assert [each.body for each in decode_stored_messages(asked.body)] == [b"secret"]
    assert (await ann.request(RequestCode.END_TRANSACTION, decision)).code == 0
    assert len(half) == 0


async def test_the_audit_log(broker: AsyncBroker, tmp_path: Path) -> None:
    async with of(broker, "admin") as client:
        assert (await client.send("new", b"v")).code == 0
        [created] = audited(tmp_path, "create")  # it was written before the answer
        assert (created["principal"], created["resource"]) == ("User:admin", "topic:new")
        [login] = await logged(tmp_path, "login", 1)
        assert (login["principal"], login["resource"]) == ("User:admin", "access-key admin-key")
        assert login["allowed"]
    async with of(broker, "ann") as client:
        await client.send("new", b"v")
        client.secret = "wrong secret"
        await client.send("new", b"v")
    [refused] = await logged(tmp_path, "write", 1)
    assert (refused["principal"], refused["allowed"]) == ("User:ann", False)
    failed = [each for each in await logged(tmp_path, "login", 3) if not each["allowed"]]
    assert [(each["principal"], each["resource"]) for each in failed] == [("User:ann-key", "access-key")]
    text = (tmp_path / "audit.log").read_text()
    assert not any(secret in text for secret in USERS.values())


async def test_connections_without_a_login_are_not_proven(broker: AsyncBroker) -> None:
    """They are closed after ten seconds: see `gate`."""
    async with client_of(broker) as client:
        await client.request(105, {"topic": "t"})
        assert unproven(broker) == 1
    async with of(broker, "admin") as signing:
        await signing.request(105, {"topic": "t"})
        async with asyncio.timeout(DEADLINE):
            while unproven(broker):  # the first is about to leave
                await asyncio.sleep(0.01)


def unproven(broker: AsyncBroker) -> int:
    return len(broker.app._gate._unproven)


async def test_no_logins_are_required() -> None:
    """Then signatures are not looked at, as clients may have keys all the same."""
    async with AsyncBroker(rocketmq=ROCKETMQ) as broker, signed_client_of(broker, "k", "whatever") as client:
        assert (await client.send("t", b"v")).code == 0
        [connection] = broker.app.connections
        assert connection.info.user is None
