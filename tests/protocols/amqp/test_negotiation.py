"""The conversation until a connection is open: as a table, and on the wire."""

from decimal import Decimal
from typing import Any

import pytest
from pamqp.commands import Channel, Connection, Queue

from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.events import METHOD
from posthouse.protocols.amqp.codec.tables import Timestamp
from posthouse.protocols.amqp.connections import AmqpConnections
from posthouse.protocols.amqp.errors import Refused
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.negotiation import AMQPLAIN, EXTERNAL, PLAIN, Credentials, Negotiation, State
from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import CAPABILITIES, PROTOCOL_HEADER, Wire

GUEST = Connection.StartOk({}, "PLAIN", "\0guest\0guest")
LOGIN_TABLE = "\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest"
PLAIN_TUNE = Connection.TuneOk(2047, 131072, 60)


def said(*methods: Any, mechanisms: tuple[str, ...] = (PLAIN, AMQPLAIN)) -> Negotiation:
    """Whoever says who they are is believed."""
    negotiation = Negotiation(AmqpLimits(), mechanisms)
    negotiation.begin()
    for method in methods:
        login = negotiation.take(method)
        if isinstance(login, Credentials):
            negotiation.logged_in(login.user)
    return negotiation


@pytest.mark.parametrize(
    ("methods", "state"),
    [
        ([], State.STARTING),
        ([GUEST], State.TUNING),
        ([GUEST, PLAIN_TUNE], State.OPENING),
        ([GUEST, PLAIN_TUNE, Connection.Open("/")], State.RUNNING),
        ([GUEST, Connection.TuneOk(1, 4096, 0)], State.OPENING),
        (
            [Connection.StartOk({}, "AMQPLAIN", LOGIN_TABLE)],
            State.TUNING,
        ),
    ],
)
def test_it_goes_step_by_step(methods: list[Any], state: State) -> None:
    assert said(*methods).state is state


@pytest.mark.parametrize(
    ("method", "login"),
    [
        (GUEST, Credentials(PLAIN, "guest", "guest")),
        (Connection.StartOk({}, "PLAIN", "\0ann\0"), Credentials(PLAIN, "ann", "")),
        (Connection.StartOk({}, "AMQPLAIN", LOGIN_TABLE), Credentials(AMQPLAIN, "guest", "guest")),
        (Connection.StartOk({}, "EXTERNAL", ""), Credentials(EXTERNAL)),
    ],
    ids=["PLAIN", "no password", "AMQPLAIN", "EXTERNAL"],
)
def test_nothing_goes_on_before_the_login_is_known_to_be_good(method: Any, login: Credentials) -> None:
    negotiation = Negotiation(AmqpLimits(), (PLAIN, AMQPLAIN, EXTERNAL))
    assert negotiation.begin().mechanisms == "PLAIN AMQPLAIN EXTERNAL"  # type: ignore[attr-defined]
    assert negotiation.take(method) == login
    assert negotiation.state is State.SECURING
    for early in (PLAIN_TUNE, Connection.Open("/"), GUEST):
        with pytest.raises(Refused, match="unexpected method in connection state securing"):
            negotiation.take(early)
    assert isinstance(negotiation.logged_in("ann"), Connection.Tune)
    assert (negotiation.state, negotiation.user) == (State.TUNING, "ann")


PROPERTIES: Any = {
    "product": "test",
    "connection_name": "billing",
    "capabilities": CAPABILITIES,
    "table": {"numbers": [0, -1, 2**40, 1.5, Decimal("1.25")], "none": None, "bytes": b"\xff", "text": "ä"},
    "since": Timestamp(1_767_312_000),
}


@pytest.mark.parametrize(
    "start_ok",
    [
        Connection.StartOk(PROPERTIES, "PLAIN", "\0ann\0hidden", "de_DE"),
        Connection.StartOk(PROPERTIES, "AMQPLAIN", LOGIN_TABLE, "en_US"),
        Connection.StartOk(PROPERTIES, "EXTERNAL", "", "en_US"),
    ],
    ids=["PLAIN", "AMQPLAIN", "EXTERNAL"],
)
def test_another_broker_is_told_all_but_the_password(start_ok: Any) -> None:
    mechanisms = (PLAIN, AMQPLAIN, EXTERNAL)
    first = said(start_ok, Connection.TuneOk(7, 8192, 30), Connection.Open("/v"), mechanisms=mechanisms)
    told = first.introduction()
    assert b"hidden" not in told
    assert b"PASSWORD" not in told
    second = Negotiation(AmqpLimits(), mechanisms, is_introduced=True)
    second.begin()
    for event in Decoder(frame_max=131_072).feed(told)[1:]:
        assert event[0] == METHOD
        if isinstance(login := second.take(event[2]), Credentials):
            assert login == Credentials(start_ok.mechanism)
            second.logged_in("ann")
    assert second.state is State.RUNNING
    for name in (
        *("vhost", "connection_name", "client_properties", "mechanism", "locale", "capabilities"),
        *("channel_max", "frame_max", "heartbeat"),
    ):
        assert getattr(second, name) == getattr(first, name)
    assert second.client_properties == PROPERTIES


def test_properties_that_another_broker_cannot_be_told() -> None:
    negotiation = said(GUEST, PLAIN_TUNE, Connection.Open("/"))
    negotiation.client_properties = {"huge": 2**64 - 1}
    with pytest.raises(Refused, match="client properties that another broker cannot be told"):
        negotiation.introduction()


def test_a_login_is_not_shown() -> None:
    assert "secret" not in repr(Credentials(PLAIN, "ann", "secret"))


@pytest.mark.parametrize(("given", "name"), [({"connection_name": "mine"}, "mine"), ({}, ""), (None, "")])
def test_the_name_that_a_client_gives_itself(given: Any, name: str) -> None:
    assert said(Connection.StartOk(given, "PLAIN", "\0guest\0guest")).connection_name == name


@pytest.mark.parametrize(
    ("methods", "code", "explanation"),
    [
        ([PLAIN_TUNE], 504, "unexpected method in connection state starting"),
        ([Connection.Open("/")], 504, "unexpected method in connection state starting"),
        ([GUEST, GUEST], 504, "unexpected method in connection state tuning"),
        ([GUEST, PLAIN_TUNE, PLAIN_TUNE], 504, "unexpected method in connection state opening"),
        ([Connection.StartOk({}, "PLAIN", "guest")], 502, "cannot be read"),
        ([Connection.StartOk({}, "AMQPLAIN", "guest")], 502, "cannot be read"),
        ([Connection.StartOk({}, "EXTERNAL", "")], 503, "unknown authentication mechanism 'EXTERNAL'"),
        ([GUEST, Connection.TuneOk(0, 131072, 0)], 530, "channel_max = 0 is higher than the maximum"),
        ([GUEST, Connection.TuneOk(2048, 131072, 0)], 530, "channel_max = 2048 is higher"),
        ([GUEST, Connection.TuneOk(1, 4095, 0)], 530, "frame_max = 4095 is lower than the minimum"),
        ([GUEST, Connection.TuneOk(1, 131073, 0)], 530, "frame_max = 131073 is higher"),
        ([GUEST, Connection.TuneOk(1, 0, 0)], 530, "frame_max = 0 is higher"),
    ],
)
def test_what_is_refused(methods: list[Any], code: int, explanation: str) -> None:
    with pytest.raises(Refused, match=explanation) as refused:
        said(*methods)
    assert refused.value.code == code
    assert not refused.value.closes_channel_only


async def test_the_broker_says_who_it_is(wire: Wire) -> None:
    assert wire.server_properties["capabilities"]["consumer_priorities"] is True
    assert "Posthouse" in wire.server_properties["platform"]
    assert (wire.tune.channel_max, wire.tune.frame_max, wire.tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x00\x00", b"AMQP\x01\x01\x00\x0a", b"GET / HTTP/1.1\r\n"])
async def test_another_protocol_is_told_ours(broker: AsyncBroker, header: bytes) -> None:
    async with await Wire.to(broker).connect() as wire:
        wire.writer.write(header)
        assert await wire.receive() == (0, PROTOCOL_HEADER)
        await wire.ended()


async def start(rig: Rig, response: str, **properties: Any) -> Wire:
    wire = await rig.wire().connect()
    wire.writer.write(PROTOCOL_HEADER)
    await wire.expect(0, Connection.Start)
    wire.send(0, Connection.StartOk(properties, "PLAIN", response))
    return wire


@pytest.mark.parametrize("response", ["\0guest\0wrong", "\0root\0guest", "\0\0"])
async def test_a_wrong_password_is_answered_where_the_client_understands(response: str) -> None:
    async with Rig() as rig:
        wire = await start(rig, response, capabilities=CAPABILITIES)
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text[:35]) == (403, "ACCESS_REFUSED - Login was refused ")
        wire.send(0, Connection.CloseOk())
        await wire.ended()


async def test_a_wrong_password_is_met_with_silence_where_not() -> None:
    async with Rig(limits=AmqpLimits(refusal_seconds=0.01)) as rig:
        wire = await start(rig, "\0guest\0wrong")
        await wire.ended()


async def test_an_unknown_vhost_is_refused() -> None:
    async with Rig() as rig:
        with pytest.raises(Exception, match="vhost nope not found") as refused:
            await rig.open(vhost="nope")
        assert refused.value.code == 530  # type: ignore[attr-defined]


async def test_everything_may_come_at_once() -> None:
    async with Rig() as rig:
        wire = await rig.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        wire.send(0, GUEST)
        wire.send(0, PLAIN_TUNE)
        wire.send(0, Connection.Open("/"))
        wire.send(1, Channel.Open())
        wire.send(1, Queue.Declare(queue="q", exclusive=True))
        wire.publish(1, "", "q")
        wire.send(1, Queue.Declare(queue="q", passive=True))
        await wire.expect(0, Connection.Start)
        await wire.expect(0, Connection.Tune)
        await wire.expect(0, Connection.OpenOk)
        await wire.expect(1, Channel.OpenOk)
        await wire.expect(1, Queue.DeclareOk)
        assert (await wire.expect(1, Queue.DeclareOk)).message_count == 1


async def test_whoever_takes_too_long_is_let_go() -> None:
    async with Rig(limits=AmqpLimits(handshake_seconds=0.3)) as rig:
        wire = await rig.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        await wire.ended()
        assert not rig.connections


async def test_channels_before_the_connection_is_open() -> None:
    async with Rig() as rig:
        wire = await start(rig, "\0guest\0guest")
        await wire.expect(0, Connection.Tune)
        wire.send(1, Channel.Open())
        assert (await wire.receive())[1].reply_code == 504


async def test_a_secret_may_be_updated(wire: Wire) -> None:
    wire.send(0, Connection.UpdateSecret("new", "the old one ends"))
    await wire.expect(0, Connection.UpdateSecretOk)


async def test_the_limit_of_unacknowledged_messages_is_a_setting() -> None:
    async with AsyncBroker(amqp=Address("127.0.0.1", 0), max_unacked=7) as broker:
        app = broker.app
        made = AmqpConnections(
            app.broker.namespaces,
            app.broker.publishing,
            app.broker.half_messages,
            app.broker.access,
            app.settings,
        )
        assert made.shared.limits == AmqpLimits(max_unacked=7)
