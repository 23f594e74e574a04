"""Logins of AMQP clients: mechanisms offered, refusals, and renewal of secrets."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.guard import Guard
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.users import check_name
from posthouse.model.errors import InvalidCredential, LoginFailed
from posthouse.model.proven_user import CERTIFICATE, ProvenUser
from posthouse.protocols.amqp.errors import Refused, ReplyCode, not_allowed
from posthouse.protocols.amqp.negotiation import AMQPLAIN, EXTERNAL, PLAIN, Credentials, LoginRefused
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.noop import noop

PROTOCOL: Final = "amqp"
GUEST: Final = "guest"
"""The user that every client tries first, and the only one where logins are not required."""


class AmqpAuthenticator:
    """Of one connection. `revoked` is told why the client must leave after it has logged in."""

    def __init__(
        self,
        access: AccessControl,
        identity: PeerIdentity,
        revoked: Callable[[Refused], None],
        *,
        failure_seconds: float,
    ) -> None:
        self._access = access
        self._revoked = revoked
        self._failure_seconds = failure_seconds
        self._login = Authenticator(access, identity, PROTOCOL, admitted=noop, revoked=self._revoke)
        self.proven: ProvenUser | None = None
        """The user who has logged in here, as another broker is told; None if login is not required."""

    @property
    def mechanisms(self) -> Sequence[str]:
        identity = self._login.identity
        if identity.is_introduced:
            return (PLAIN, AMQPLAIN, EXTERNAL)  # the other broker has offered what its client may use
        if not self.is_required:
            return (PLAIN, AMQPLAIN)
        passwords = (PLAIN, AMQPLAIN) if identity.may_send_password else ()
        return (*passwords, EXTERNAL) if identity.certified is not None else passwords

    @property
    def is_required(self) -> bool:
        return self._login.is_required

    async def admit(self, login: Credentials) -> Guard:
        """What the client may do from now on. Raises Refused, not before some time has passed."""
        if self._login.identity.is_introduced:
            return await self._admit_introduced(login.mechanism)
        if not self.is_required:
            if login.user != GUEST or login.password != GUEST:
                raise LoginRefused(login.mechanism)
            self._login.admit_anonymous()
            return self._login.guard
        is_external = login.mechanism == EXTERNAL
        user = (self._login.identity.certified or "") if is_external else login.user
        try:
            principal = await self._verified(login.mechanism, user, login.password)
        except LoginFailed as failure:
            self._login.record(user, login.mechanism, failure)
            # Guessing passwords must be slow, and clients that try again at once must not keep us busy.
            await asyncio.sleep(self._failure_seconds)
            raise LoginRefused(login.mechanism) from None
        self._enter(principal)
        self._login.record(user, login.mechanism)
        self.proven = self._login.prove(CERTIFICATE if is_external else PLAIN)
        return self._login.guard

    async def _admit_introduced(self, mechanism: str) -> Guard:
        """The other broker has done the login. It is trusted in that, but may be behind."""
        if not self.is_required:
            self._login.admit_anonymous()
            return self._login.guard
        identity = self._login.identity
        broker = "this host" if identity.forwarder is None else identity.forwarder.host
        user = identity.relayed_user
        name, told = ("", mechanism) if user is None else (user.name, f"{user.mechanism} relayed by {broker}")
        try:
            if user is None:
                raise LoginFailed(f"the broker at {broker} transfers a client without a login")
            await self._admit_proven(user)
        except LoginFailed as failure:
            self._login.record(name, told, failure)
            raise LoginRefused(mechanism) from None
        self._login.record(name, told)
        return self._login.guard

    async def _admit_proven(self, user: ProvenUser) -> None:
        has_tls = self._login.identity.has_tls
        try:
            self._login.admit_proven(user, has_tls=has_tls)
        except LoginFailed:
            await self._login.refresh_users()  # it may also be this broker that is behind
            self._login.admit_proven(user, has_tls=has_tls)

    async def check_secret(self, user: str, secret: str) -> None:
        """Another password of the user who is logged in. Raises Refused."""
        if not self.is_required:
            return
        try:
            await self._login.verify_password(user, secret)
        except LoginFailed as failure:
            self._login.record(user, "update-secret", failure)
            await asyncio.sleep(self._failure_seconds)
            raise not_allowed("New secret was refused by one of the backends") from None
        self._login.record(user, "update-secret")

    def transfer(self) -> None:
        """Another broker serves the client, and tells it if its user is revoked. The connection is still
        counted here."""
        self._revoked = noop

    def close(self) -> None:
        self._revoked = noop
        self._login.close()

    async def _verified(self, mechanism: str, user: str, password: str) -> Principal:
        try:
            check_name(user)
        except InvalidCredential as error:
            raise LoginFailed(str(error)) from None
        if mechanism == EXTERNAL:
            return Principal(user)
        return await self._login.verify_password(user, password)

    def _enter(self, principal: Principal) -> None:
        try:
            self._login.admit(principal)
        except LoginFailed as failure:
            name = principal.name
            self._login.record(name, "connections", failure)
            limit = self._access.sessions.limit
            raise not_allowed(
                f"connection refused for user '{name}': user connection limit ({limit}) is reached"
            ) from None

    def _revoke(self) -> None:
        name = self._login.user
        assert name is not None
        is_there = self._access.users.get(name) is not None
        reason = f"user '{name}' has another password now" if is_there else f"user '{name}' was deleted"
        self._revoked(Refused(ReplyCode.CONNECTION_FORCED, reason))
