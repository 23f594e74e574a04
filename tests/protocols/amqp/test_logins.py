"""Users, where everybody has to log in: who comes in, in which way, and who has to go."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue

from posthouse.broker.access.guard import AclGuard
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.model.errors import LoginFailed
from posthouse.model.proven_user import CERTIFICATE, ProvenUser
from posthouse.protocols.amqp.authenticator import AmqpAuthenticator
from posthouse.protocols.amqp.errors import Refused
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.negotiation import AMQPLAIN, EXTERNAL, PLAIN, Credentials, LoginRefused
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.settings import Address
from tests.protocols.amqp.guarded import ADMIN, PASSWORD, GuardedRig
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import CAPABILITIES, PROTOCOL_HEADER, Closed, Wire

REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}. "
    "For details see the broker logfile."
)


async def start(rig: Rig, mechanism: str, response: str) -> Wire:
    wire = await rig.wire().connect()
    wire.writer.write(PROTOCOL_HEADER)
    await wire.expect(0, Connection.Start)
    given: Any = {"capabilities": CAPABILITIES}
    wire.send(0, Connection.StartOk(given, mechanism, response))
    return wire


def amqplain(user: str, password: str) -> str:
    def field(name: str, value: str) -> bytes:
        return bytes([len(name)]) + name.encode() + b"S" + len(value).to_bytes(4) + value.encode()

    return (field("LOGIN", user) + field("PASSWORD", password)).decode()


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [(PLAIN, f"\0ann\0{PASSWORD}"), (AMQPLAIN, amqplain("ann", PASSWORD))],
    ids=[PLAIN, AMQPLAIN],
)
async def test_a_user_logs_in(mechanism: str, response: str) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        wire = await start(rig, mechanism, response)
        await wire.expect(0, Connection.Tune)
        assert rig.access.sessions.count("ann") == 1
        assert rig.recorded[-1] == ("User:ann", "login", mechanism, True)


@pytest.mark.parametrize(
    ("mechanism", "response", "name"),
    [
        (PLAIN, "\0ann\0wrong", "ann"),
        (PLAIN, "\0ann\0", "ann"),
        (PLAIN, f"\0bob\0{PASSWORD}", "bob"),
        (PLAIN, "\0guest\0guest", "guest"),
        (PLAIN, f"\0\0{PASSWORD}", ""),
        (PLAIN, f"\0{'x' * 5000}\0wrong", "x" * 5000),
        (AMQPLAIN, amqplain("ann", "wrong"), "ann"),
    ],
    ids=["password", "no password", "no such user", "guest", "nobody", "long name", "AMQPLAIN"],
)
async def test_a_wrong_login(mechanism: str, response: str, name: str) -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        wire = await start(rig, mechanism, response)
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (403, REFUSED.format(mechanism))
        assert (close.class_id, close.method_id) == (10, 11)
        wire.send(0, Connection.CloseOk())
        await wire.ended()
        assert rig.recorded == [(f"User:{name}", "login", mechanism, False)]
        assert rig.access.sessions.count("ann") == 0


async def test_whoever_has_a_wrong_password_waits_to_be_told() -> None:
    async with GuardedRig(limits=AmqpLimits(failed_login_seconds=0.2)) as rig:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(Closed):
            await rig.open(user=ADMIN, password="wrong")
        assert asyncio.get_running_loop().time() - begun >= 0.2


async def test_nothing_is_served_while_a_login_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with GuardedRig() as rig:
        gate = asyncio.Event()
        check = rig.access.users.check_password

        async def slow(name: str, password: str, source: str) -> None:
            await gate.wait()
            await check(name, password, source)

        monkeypatch.setattr(rig.access.users, "check_password", slow)
        wire = await start(rig, PLAIN, f"\0{ADMIN}\0{PASSWORD}")
        wire.send(0, Connection.TuneOk(2047, 131072, 0))
        wire.send(0, Connection.Open("/"))
        wire.send(1, Channel.Open())
        wire.send(1, Queue.Declare(queue="q"))
        connection = await rig.paused()
        await wire.nothing()
        assert connection._conversation.session is None
        gate.set()
        await wire.expect(0, Connection.Tune)
        await wire.expect(0, Connection.OpenOk)
        await wire.expect(1, Channel.OpenOk)
        await wire.expect(1, Queue.DeclareOk)
        assert not connection._flow.is_paused


@pytest.mark.parametrize("good", [True, False])
async def test_a_client_that_leaves_while_its_login_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    async with GuardedRig() as rig:
        gate = asyncio.Event()

        async def slow(name: str, password: str, source: str) -> None:
            await gate.wait()
            if not good:
                raise LoginFailed("no")

        monkeypatch.setattr(rig.access.users, "check_password", slow)
        wire = await start(rig, PLAIN, f"\0{ADMIN}\0{PASSWORD}")
        await rig.paused()
        wire.writer.transport.abort()
        rig.connections[0].abort()
        gate.set()
        while rig.connections:
            await asyncio.sleep(0.001)
        assert rig.access.sessions.count(ADMIN) == 0


async def test_the_time_for_a_login_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async with GuardedRig(limits=AmqpLimits(handshake_seconds=0.05)) as rig:
        never = asyncio.Event()

        async def slow(name: str, password: str, source: str) -> None:
            await never.wait()

        monkeypatch.setattr(rig.access.users, "check_password", slow)
        wire = await start(rig, PLAIN, f"\0{ADMIN}\0{PASSWORD}")
        await wire.ended()
        never.set()


async def test_a_user_may_have_so_many_connections() -> None:
    async with GuardedRig(max_connections_per_user=2) as rig:
        await rig.with_user("ann")
        first = await rig.log_in("ann")
        async with await rig.log_in("ann"), await rig.log_in(ADMIN):
            with pytest.raises(Closed) as refused:
                await rig.log_in("ann")
            assert (refused.value.code, refused.value.text) == (
                530,
                "NOT_ALLOWED - connection refused for user 'ann': user connection limit (2) is reached",
            )
            await first.close()
            async with await rig.log_in("ann"):
                assert rig.access.sessions.count("ann") == 2
        while rig.connections:
            await asyncio.sleep(0.001)
        assert rig.access.sessions.count("ann") == 0


async def test_a_user_who_is_deleted_has_to_go() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        async with await rig.log_in("ann") as ann, await rig.log_in(ADMIN) as other:
            await rig.access.users.delete("ann")
            _, close = await ann.receive()
            assert (close.reply_code, close.reply_text) == (
                320,
                "CONNECTION_FORCED - user 'ann' was deleted",
            )
            ann.send(0, Connection.CloseOk())
            await ann.ended()
            await other.call(1, Queue.Declare(exclusive=True))


async def test_a_user_with_another_password_has_to_log_in_again() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        async with await rig.log_in("ann") as ann:
            await rig.access.users.set_password("ann", "another one")
            _, close = await ann.receive()
            assert close.reply_text == "CONNECTION_FORCED - user 'ann' has another password now"
        with pytest.raises(Closed):
            await rig.log_in("ann")
        await rig.open(user="ann", password="another one")


async def test_a_user_who_is_deleted_between_login_and_open() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        wire = await start(rig, PLAIN, f"\0ann\0{PASSWORD}")
        await wire.expect(0, Connection.Tune)
        await rig.access.users.delete("ann")
        assert (await wire.receive())[1].reply_code == 320


async def test_a_new_secret_is_looked_at() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann")
        async with await rig.log_in("ann") as wire:
            wire.send(0, Connection.UpdateSecret(PASSWORD, "the old one ends"))
            await wire.expect(0, Connection.UpdateSecretOk)
            wire.send(0, Connection.UpdateSecret("wrong", "the old one ends"))
            _, close = await wire.receive()
            assert (close.reply_code, close.reply_text) == (
                530,
                "NOT_ALLOWED - New secret was refused by one of the backends",
            )
        assert rig.recorded[-2:] == [
            ("User:ann", "login", "update-secret", True),
            ("User:ann", "login", "update-secret", False),
        ]


async def test_messages_name_their_real_sender() -> None:
    async with GuardedRig() as rig, await rig.log_in(ADMIN) as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        wire.publish(1, "", "q", user_id=ADMIN)
        assert (await wire.call(1, Basic.Get(queue="q"))).properties.user_id == ADMIN
        wire.publish(1, "", "q", user_id="guest")
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (
            406,
            "PRECONDITION_FAILED - user_id property set to 'guest' but authenticated user was 'admin'",
        )


# Ways in: what is offered depends on how the client came

NEAR = PeerIdentity(peer="127.0.0.1:4711")
FAR = PeerIdentity(peer="192.0.2.1:4711", may_send_password=False)
CERTIFIED = PeerIdentity(peer="192.0.2.1:4711", certified="ann", may_send_password=True)
CERTIFIED_ONLY = PeerIdentity(peer="192.0.2.1:4711", certified="ann", may_send_password=False)


def unexpected(refusal: Refused) -> None:
    raise AssertionError(refusal)


@pytest.mark.parametrize(
    ("client", "required", "not_required"),
    [
        (NEAR, (PLAIN, AMQPLAIN), (PLAIN, AMQPLAIN)),
        (FAR, (), (PLAIN, AMQPLAIN)),
        (CERTIFIED, (PLAIN, AMQPLAIN, EXTERNAL), (PLAIN, AMQPLAIN)),
        (CERTIFIED_ONLY, (EXTERNAL,), (PLAIN, AMQPLAIN)),
    ],
    ids=["near", "far, in the clear", "certified", "certified, no passwords"],
)
def test_mechanisms(client: PeerIdentity, required: tuple[str, ...], not_required: tuple[str, ...]) -> None:
    for rig, expected in ((GuardedRig(), required), (Rig(), not_required)):
        authenticator = AmqpAuthenticator(rig.broker.access, client, unexpected, failure_seconds=0)
        assert tuple(authenticator.mechanisms) == expected


@pytest.mark.parametrize("allowed", [True, False])
async def test_passwords_that_others_could_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, allowed: bool
) -> None:
    monkeypatch.setattr(Address, "is_loopback", False)
    async with GuardedRig(allow_cleartext_passwords=allowed) as rig:
        wire = await rig.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        start = await wire.expect(0, Connection.Start)
        assert start.mechanisms == ("PLAIN AMQPLAIN" if allowed else "")
        assert ("allow_cleartext_passwords" in caplog.text) is not allowed
        wire.send(0, Connection.StartOk({}, "PLAIN", f"\0{ADMIN}\0{PASSWORD}"))
        _, answer = await wire.receive()
        if allowed:
            assert isinstance(answer, Connection.Tune)
        else:
            assert answer.reply_text == "COMMAND_INVALID - unknown authentication mechanism 'PLAIN'"


async def test_a_certificate_tells_who_it_is() -> None:
    async with GuardedRig() as rig:
        rig.recorded.clear()
        rig.access.audit.record = lambda *_, **__: 0  # type: ignore[method-assign]
        sent_away: list[Refused] = []
        authenticator = AmqpAuthenticator(rig.access, CERTIFIED_ONLY, sent_away.append, failure_seconds=0)
        guard = await authenticator.admit(Credentials(EXTERNAL))
        assert isinstance(guard, AclGuard)
        assert guard.principal == Principal("ann")
        assert rig.access.sessions.count("ann") == 1
        rig.access.sessions.disconnect("ann")
        assert [str(each) for each in sent_away] == ["user 'ann' was deleted"]
        authenticator.close()
        assert rig.access.sessions.count("ann") == 0


@pytest.mark.parametrize("name", ["", "*", "line\nend", "x" * 300])
async def test_certificates_of_nobody(name: str) -> None:
    async with GuardedRig() as rig:
        rig.access.audit.record = lambda *_, **__: 0  # type: ignore[method-assign]
        client = PeerIdentity(peer="192.0.2.1:4711", certified=name)
        authenticator = AmqpAuthenticator(rig.access, client, unexpected, failure_seconds=0)
        with pytest.raises(LoginRefused):
            await authenticator.admit(Credentials(EXTERNAL))


# Clients that another broker has transferred


def introduced(user: ProvenUser | None) -> PeerIdentity:
    return PeerIdentity(
        peer="192.0.2.1:4711",
        forwarder=Address("127.0.0.1", 5),
        is_introduced=True,
        relayed_user=user,
        may_send_password=False,
    )


async def test_a_holder_that_is_behind_asks_the_database_before_it_refuses_a_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with GuardedRig() as rig:
        rig.access.audit.record = lambda *_, **__: 0  # type: ignore[method-assign]
        users = rig.access.users
        await users.set_password("ann", "first", iterations=MIN_ITERATIONS)
        proven = rig.access.proven_users.prove("ann", PLAIN)
        known = users._users.pop("ann")
        asked = 0

        async def refresh() -> None:
            nonlocal asked
            asked += 1
            users._users.setdefault("ann", known)

        monkeypatch.setattr(rig.access, "refresh", refresh)
        for expected in (1, 1):
            authenticator = AmqpAuthenticator(rig.access, introduced(proven), unexpected, failure_seconds=0)
            assert set(authenticator.mechanisms) == {PLAIN, AMQPLAIN, EXTERNAL}
            guard = await authenticator.admit(Credentials(PLAIN))
            assert guard.principal == Principal("ann")
            assert rig.access.sessions.count("ann") == 0, "the other broker counts it"
            authenticator.close()
            assert asked == expected
        await users.set_password("ann", "second", iterations=MIN_ITERATIONS)
        authenticator = AmqpAuthenticator(rig.access, introduced(proven), unexpected, failure_seconds=0)
        with pytest.raises(LoginRefused):
            await authenticator.admit(Credentials(PLAIN))
        assert asked == 2


@pytest.mark.parametrize("has_tls", [True, False])
async def test_certificates_that_another_broker_has_seen(has_tls: bool) -> None:
    async with GuardedRig() as rig:
        rig.access.audit.record = lambda *_, **__: 0  # type: ignore[method-assign]
        rig.access.proven_users._takes_certificates = True
        identity = replace(introduced(ProvenUser(name="ann", mechanism=CERTIFICATE)), has_tls=has_tls)
        authenticator = AmqpAuthenticator(rig.access, identity, unexpected, failure_seconds=0)
        if has_tls:
            assert (await authenticator.admit(Credentials(EXTERNAL))).principal == Principal("ann")
        else:
            with pytest.raises(LoginRefused):
                await authenticator.admit(Credentials(EXTERNAL))
        authenticator.close()


async def test_a_certificate_is_needed_for_external() -> None:
    async with GuardedRig() as rig:
        wire = await start(rig, EXTERNAL, "")
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (
            503,
            "COMMAND_INVALID - unknown authentication mechanism 'EXTERNAL'",
        )
