"""How a client gets in: the ways there are for it, whether it is who it says, and when it has to go."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.guard import Guard
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.users import check_name
from posthouse.model.errors import InvalidCredential, LoginFailed
from posthouse.protocols.amqp.errors import Refused, ReplyCode, not_allowed
from posthouse.protocols.amqp.negotiation import AMQPLAIN, EXTERNAL, PLAIN, Login, LoginRefused
from posthouse.protocols.noop import noop
from posthouse.protocols.tls import name_of
from posthouse.settings import Address

PROTOCOL: Final = "amqp"
_GUEST: Final = "guest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What is known of a client before it has said a word."""

    peer: str
    certified: str | None = None
    """The name in its certificate, which was found to be good."""
    may_tell_password: bool = True
    """Nobody else reads it on its way, or that does not matter."""

    @classmethod
    def at(cls, transport: asyncio.BaseTransport, *, allow_cleartext: bool) -> "Client":
        """At the other end."""
        found = transport.get_extra_info("peername")
        address = Address(found[0], found[1]) if isinstance(found, tuple) else None
        is_near = address is not None and address.is_loopback
        is_private = is_near or transport.get_extra_info("ssl_object") is not None
        return cls(
            peer=str(address or found or "?"),
            certified=name_of(transport),
            may_tell_password=is_private or allow_cleartext,
        )


class Entrance:
    """Of one connection. `sent_away` is told why the client has to go after it has come in."""

    def __init__(
        self,
        access: AccessControl,
        client: Client,
        sent_away: Callable[[Refused], None],
        *,
        failure_seconds: float,
    ) -> None:
        self._access = access
        self._client = client
        self._sent_away = sent_away
        self._failure_seconds = failure_seconds
        self._entered: tuple[str, int] | None = None

    @property
    def mechanisms(self) -> Sequence[str]:
        if not self._access.is_required:
            return (PLAIN, AMQPLAIN)
        passwords = (PLAIN, AMQPLAIN) if self._client.may_tell_password else ()
        return (*passwords, EXTERNAL) if self._client.certified is not None else passwords

    @property
    def is_required(self) -> bool:
        return self._access.is_required

    async def admit(self, login: Login) -> Guard:
        """What it may do from now on. Raises Refused, not before some time has passed."""
        if not self.is_required:
            # The user that every client tries first.
            if login.user != _GUEST or login.password != _GUEST:
                raise LoginRefused(login.mechanism)
            return self._access.guard(None, self._client.peer, PROTOCOL)
        user = (self._client.certified or "") if login.mechanism == EXTERNAL else login.user
        try:
            principal = await self._known(login.mechanism, user, login.password)
            self._enter(principal)
        except LoginFailed as failure:
            self._record(user, login.mechanism, failure)
            # Whoever guesses passwords is to take their time, and so are clients that try again at once.
            await asyncio.sleep(self._failure_seconds)
            raise LoginRefused(login.mechanism) from None
        self._record(user, login.mechanism)
        return self._access.guard(principal, self._client.peer, PROTOCOL)

    async def check_secret(self, user: str, secret: str) -> None:
        """Another password of whoever is in already. Raises Refused."""
        if not self.is_required:
            return
        try:
            await self._access.log_in(user, secret, self._client.peer)
        except LoginFailed as failure:
            self._record(user, "update-secret", failure)
            await asyncio.sleep(self._failure_seconds)
            raise not_allowed("New secret was refused by one of the backends") from None
        self._record(user, "update-secret")

    def leave(self) -> None:
        self._sent_away = noop
        if self._entered is not None:
            self._access.sessions.exit(*self._entered)
            self._entered = None

    async def _known(self, mechanism: str, user: str, password: str) -> Principal:
        try:
            check_name(user)
        except InvalidCredential as error:
            raise LoginFailed(str(error)) from None
        if mechanism == EXTERNAL:
            return Principal(user)
        return await self._access.log_in(user, password, self._client.peer)

    def _enter(self, principal: Principal) -> None:
        name, sessions = principal.name, self._access.sessions
        try:
            self._entered = (name, sessions.enter(name, self._send_away))
        except LoginFailed as failure:
            self._record(name, "connections", failure)
            raise not_allowed(
                f"connection refused for user '{name}': user connection limit ({sessions.count(name)}) is "
                "reached"
            ) from None

    def _send_away(self) -> None:
        assert self._entered is not None
        name = self._entered[0]
        is_there = self._access.users.get(name) is not None
        reason = f"user '{name}' has another password now" if is_there else f"user '{name}' was deleted"
        self._sent_away(Refused(ReplyCode.CONNECTION_FORCED, reason))

    def _record(self, user: str, mechanism: str, failure: LoginFailed | None = None) -> None:
        self._access.record_login(user, self._client.peer, PROTOCOL, mechanism, failure)
