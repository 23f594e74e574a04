"""The conversation until a connection is open. Sans-IO: methods in, methods out."""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pamqp.base import Frame as Command
from pamqp.commands import Connection

from posthouse import __version__
from posthouse.protocols.amqp.codec.commands import encode_command
from posthouse.protocols.amqp.codec.framing import PROTOCOL
from posthouse.protocols.amqp.codec.tables import MalformedTable, decode_table
from posthouse.protocols.amqp.errors import Refused, ReplyCode, channel_error, command_invalid, not_allowed
from posthouse.protocols.amqp.limits import SMALLEST_FRAME_MAX, AmqpLimits
from posthouse.protocols.plain import parse_plain

SERVER_PROPERTIES: Final[Mapping[str, object]] = {
    # Clients look at product and version for what the broker can do: kombu, and with it Celery, asks for a
    # prefetch that holds for running consumers only of a RabbitMQ from 3.3 to before 4.0.
    "product": "RabbitMQ",
    "version": "3.13.0",
    "platform": f"Posthouse {__version__}, Python {platform.python_version()}",
    "information": "This is Posthouse, which speaks as RabbitMQ does.",
    "cluster_name": "posthouse",
    "capabilities": {
        "publisher_confirms": True,
        "exchange_exchange_bindings": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "consumer_priorities": True,
        "authentication_failure_close": True,
        "per_consumer_qos": True,
        "direct_reply_to": True,
    },
}
PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"


class State(StrEnum):
    """The state of the handshake. The names are those that RabbitMQ uses in its messages."""

    WAITING = "waiting"
    """For the protocol header."""
    STARTING = "starting"
    SECURING = "securing"
    """The client has sent its credentials, and they are being checked."""
    TUNING = "tuning"
    OPENING = "opening"
    RUNNING = "running"


class LoginRefused(Refused):
    def __init__(self, mechanism: str) -> None:
        super().__init__(
            ReplyCode.ACCESS_REFUSED,
            f"Login was refused using authentication mechanism {mechanism}. "
            "For details see the broker logfile.",
        )

    @property
    def closes_channel_only(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Unverified credentials of a client. Has no repr that could end up in a log."""

    mechanism: str
    user: str = ""
    password: str = ""


class Negotiation:
    def __init__(self, limits: AmqpLimits, mechanisms: Sequence[str], *, is_introduced: bool = False) -> None:
        """`is_introduced`: another broker has done the login, and sends the client's methods again, without
        the password."""
        self._limits = limits
        self._is_introduced = is_introduced
        self.mechanisms = mechanisms
        """The ways to log in that are offered."""
        self.state = State.WAITING
        self.user = ""
        self.vhost = ""
        self.connection_name = ""
        """The name that the client gives to its connection."""
        self.client_properties: Mapping[str, object] = {}
        """What the client tells of its software."""
        self.mechanism = ""
        self.locale = ""
        self.capabilities: Mapping[str, object] = {}
        self.channel_max = limits.channel_max
        self.frame_max = limits.frame_max
        self.heartbeat = 0

    @property
    def can_be_told(self) -> bool:
        """Whether the client understands why it may not log in."""
        return self.capabilities.get("authentication_failure_close") is True

    def begin(self) -> Command:
        """The client speaks our protocol."""
        self.state = State.STARTING
        properties: Any = dict(SERVER_PROPERTIES)
        return Connection.Start(0, 9, properties, " ".join(self.mechanisms), "en_US")

    def take(self, method: Command) -> Command | Credentials | None:
        """The answer; None if the client sends the next method without one; or credentials to be checked."""
        step = _STEPS.get((self.state, type(method)))
        if step is None:
            raise channel_error(f"unexpected method in connection state {self.state}")
        return step(self, method)

    def _start_ok(self, method: Connection.StartOk) -> Credentials:
        properties: Mapping[str, object] = method.client_properties or {}
        self.client_properties = properties
        self.mechanism = method.mechanism
        self.locale = method.locale
        capabilities = properties.get("capabilities")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        name = properties.get("connection_name")
        self.connection_name = name if isinstance(name, str) else ""
        if method.mechanism not in self.mechanisms:
            raise command_invalid(f"unknown authentication mechanism '{method.mechanism}'")
        given: str | bytes = method.response
        if self._is_introduced:
            login = Credentials(method.mechanism)
        else:
            login = _MECHANISM[method.mechanism](given.encode() if isinstance(given, str) else given)
        self.state = State.SECURING
        return login

    def introduction(self) -> bytes:
        """For another broker: the client's methods up to connection.open, without its password. Raises
        Refused."""
        properties: Any = self.client_properties
        start_ok = Connection.StartOk(properties, self.mechanism, "", self.locale)
        tune_ok = Connection.TuneOk(self.channel_max, self.frame_max, self.heartbeat)
        opening = Connection.Open()
        opening.virtual_host = self.vhost  # the other broker refuses a name that is too long
        try:
            return PROTOCOL + b"".join(encode_command(0, each) for each in (start_ok, tune_ok, opening))
        except MalformedTable as error:  # not all numbers that can be read can be written
            raise Refused(
                ReplyCode.SYNTAX_ERROR, f"client properties that another broker cannot be told: {error}"
            ) from None

    def logged_in(self, user: str) -> Command:
        """The credentials are valid: the answer is connection.tune."""
        self.user = user
        self.state = State.TUNING
        limits = self._limits
        return Connection.Tune(limits.channel_max, limits.frame_max, limits.heartbeat)

    def _tune_ok(self, method: Connection.TuneOk) -> None:
        _check_limit("frame_max", method.frame_max, SMALLEST_FRAME_MAX, self._limits.frame_max)
        _check_limit("channel_max", method.channel_max, 1, self._limits.channel_max)
        self.frame_max = method.frame_max
        self.channel_max = method.channel_max
        self.heartbeat = method.heartbeat
        self.state = State.OPENING

    def _open(self, method: Connection.Open) -> Command:
        self.vhost = method.virtual_host
        self.state = State.RUNNING
        return Connection.OpenOk()


_STEPS: Final[
    dict[tuple[State, type[Command]], Callable[[Negotiation, Any], Command | Credentials | None]]
] = {
    (State.STARTING, Connection.StartOk): Negotiation._start_ok,
    (State.TUNING, Connection.TuneOk): Negotiation._tune_ok,
    (State.OPENING, Connection.Open): Negotiation._open,
}


def _check_limit(name: str, asked: int, least: int, most: int) -> None:
    """0 asks for no limit, which is more than there is."""
    if asked and asked < least:
        raise not_allowed(f"negotiated {name} = {asked} is lower than the minimum allowed value ({least})")
    if not asked or asked > most:
        raise not_allowed(f"negotiated {name} = {asked} is higher than the maximum allowed value ({most})")


def _plain(response: bytes) -> Credentials:
    said = parse_plain(response)
    if said is None:
        raise Refused(ReplyCode.SYNTAX_ERROR, "a PLAIN response that cannot be read")
    return Credentials(PLAIN, said.user.decode(errors="replace"), said.password.decode(errors="replace"))


def _amqplain(response: bytes) -> Credentials:
    """A table without its length."""
    try:
        table, _ = decode_table(len(response).to_bytes(4) + response)
        user, password = table["LOGIN"], table["PASSWORD"]
    except (MalformedTable, KeyError):
        raise Refused(ReplyCode.SYNTAX_ERROR, "an AMQPLAIN response that cannot be read") from None
    return Credentials(AMQPLAIN, str(user), str(password))


def _external(response: bytes) -> Credentials:
    """EXTERNAL: the certificate of the connection names the user."""
    return Credentials(EXTERNAL)


_MECHANISM: Final[Mapping[str, Callable[[bytes], Credentials]]] = {
    PLAIN: _plain,
    AMQPLAIN: _amqplain,
    EXTERNAL: _external,
}
