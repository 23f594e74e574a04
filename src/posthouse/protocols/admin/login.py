"""Who makes a request: HTTP Basic credentials, or the certificate of the connection.

The login belongs to the request. A connection remembers the last one, so that the password is verified once
and not with every request; other credentials are verified anew.
"""

import binascii
import hmac
from base64 import b64decode
from collections.abc import Callable

from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.broker.access.principal import Principal
from posthouse.listener_settings import ListenerSettings
from posthouse.model.errors import LoginFailed
from posthouse.model.proven_user import BROKER, CERTIFICATE, PLAIN, ProvenUser
from posthouse.protocols.admin.other_brokers import Caller
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.noop import noop

PROTOCOL = "http"
_CHALLENGE = (("www-authenticate", 'Basic realm="Posthouse", charset="UTF-8"'),)


class HttpLogin:
    def __init__(
        self,
        access: AccessControl,
        identity: PeerIdentity,
        listener: ListenerSettings,
        *,
        is_relayed: bool,
        proven: Callable[[], None],
        revoked: Callable[[], None],
    ) -> None:
        """`is_relayed`: another broker has made the connection, for a request of the client. `proven` is
        called when a client has logged in, `revoked` when its user is deleted or gets another password."""
        self._access = access
        self._listener = listener
        self._is_relayed = is_relayed
        self._identity = identity
        self._proven = proven
        self._revoked = revoked
        self._authenticator = self._new_authenticator()
        self._proven_user: ProvenUser | None = None
        """As other brokers are told of the user who has logged in."""
        self._credentials = ""
        self.has_failed = False
        """Whether the last credentials were wrong."""

    def _new_authenticator(self) -> Authenticator:
        return Authenticator(
            self._access, self._identity, PROTOCOL, admitted=self._admitted, revoked=lambda: self._revoked()
        )

    def _admitted(self, guard: Guard) -> None:
        self._proven()

    @property
    def user(self) -> str | None:
        return self._authenticator.user

    @property
    def is_relayed(self) -> bool:
        return self._is_relayed

    @property
    def caller(self) -> Caller:
        """Of the last request."""
        return Caller(
            listener=self._listener.name,
            client=self._identity.address,
            user=self._proven_user,
            is_relayed=self._is_relayed,
        )

    async def guard(self, credentials: str | None) -> Guard:
        """The guard for a request with this Authorization header. Raises Problem 401."""
        self.has_failed = False
        if not self._authenticator.is_required:
            if self._authenticator.guard is CLOSED:
                self._authenticator.admit_anonymous()
            return self._authenticator.guard
        if self._is_relayed:
            return self._guard_of_relayed(self._identity.relayed_user)
        if credentials is None:
            if self._identity.certified is not None:
                return self._guard_of_certificate(self._identity.certified)
            raise Problem(401, "log in with a user name and password (HTTP Basic)", headers=_CHALLENGE)
        if self._credentials and hmac.compare_digest(self._credentials.encode(), credentials.encode()):
            return self._authenticator.guard
        return await self._guard_of_password(credentials)

    def _guard_of_relayed(self, user: ProvenUser | None) -> Guard:
        """The other broker has checked the login. It is trusted in that, but may be behind."""
        authenticator = self._authenticator
        if authenticator.guard is not CLOSED:
            return authenticator.guard
        if user is None:
            raise Problem(401, "another broker sends a request of a client without a login")
        if user.mechanism == BROKER:
            authenticator.admit_anonymous()
            return authenticator.guard
        mechanism = f"{user.mechanism} relayed by {self._identity.forwarder}"
        try:
            authenticator.admit_proven(user, has_tls=self._listener.has_tls)
        except LoginFailed as error:
            authenticator.record(user.name, mechanism, error)
            raise Problem(401, str(error)) from None
        authenticator.record(user.name, mechanism)
        return authenticator.guard

    def _guard_of_certificate(self, name: str) -> Guard:
        if self._authenticator.user != name:
            self._admit(Principal(name), CERTIFICATE)
            self._proven_user = self._authenticator.prove(CERTIFICATE)
        return self._authenticator.guard

    async def _guard_of_password(self, credentials: str) -> Guard:
        if not self._identity.may_send_password:
            raise Problem(403, "passwords are accepted with TLS only; use the address of admin_tls")
        user, password = _parse(credentials)
        try:
            principal = await self._authenticator.verify_password(user, password)
        except LoginFailed as error:
            self._authenticator.record(user, "basic", error)
            self.has_failed = True
            raise Problem(401, str(error), headers=_CHALLENGE) from None
        self._admit(principal, "basic")
        self._proven_user = self._authenticator.prove(PLAIN)
        self._credentials = credentials
        return self._authenticator.guard

    def _admit(self, principal: Principal, mechanism: str) -> None:
        self._authenticator.close()
        self._credentials = ""
        self._proven_user = None
        self._authenticator = self._new_authenticator()
        try:
            self._authenticator.admit(principal)
        except LoginFailed as error:
            self._authenticator.record(principal.name, mechanism, error)
            raise Problem(401, str(error), headers=_CHALLENGE) from None
        self._authenticator.record(principal.name, mechanism)

    def close(self) -> None:
        """The connection is lost. Nothing here refers to it any more."""
        self._authenticator.close()
        self._proven = self._revoked = noop


def _parse(credentials: str) -> tuple[str, str]:
    scheme, _, encoded = credentials.partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        user, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
        if not colon:
            raise ValueError
    except (ValueError, binascii.Error):
        raise Problem(401, "the Authorization header is not HTTP Basic", headers=_CHALLENGE) from None
    return user, password
