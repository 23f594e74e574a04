"""Login of one connection, for any protocol: from credentials to a principal and its guard.

A protocol reads the credentials from the wire and calls `verify_password`, `verify_signature`, `scram` or
uses the certificate in `PeerIdentity`. With the principal it calls `admit`, which counts the connection for
its user, and `record` writes the outcome to the audit log. If login is not required, `admit_anonymous` is
enough.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from posthouse.broker.access.access_keys import AccessKey
from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.scram import ScramServer
from posthouse.model.address import UNKNOWN, Address
from posthouse.model.errors import LoginFailed
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scram import Mechanism
from posthouse.protocols.introduction import FORWARDER, RELAYED_BY, RELAYED_USER
from posthouse.protocols.noop import noop
from posthouse.protocols.tls import name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """What is known of a client before it has sent anything."""

    peer: str
    """Address and port of the client, for people."""
    address: Address = UNKNOWN
    certified: str | None = None
    """The name in the client's verified certificate."""
    forwarder: Address | None = None
    """The broker that has passed the connection on, or relays the client's requests."""
    is_introduced: bool = False
    """That broker has done the login, if one is required."""
    relayed_user: ProvenUser | None = None
    """Has logged in at another broker of the cluster, which relays the client's requests or has transferred
    its connection."""
    has_tls: bool = False
    """The client has connected to a listener with TLS, of this broker or of the other one."""
    may_send_password: bool = True
    """The connection is private (TLS, or this machine), or passwords in cleartext are allowed."""

    @property
    def is_relayed(self) -> bool:
        """The client's connection is at another broker, which counts it."""
        return self.forwarder is not None and self.relayed_user is not None

    @classmethod
    def of(
        cls, transport: asyncio.BaseTransport, *, allow_cleartext: bool, has_tls: bool = False
    ) -> "PeerIdentity":
        """`has_tls`: the listener has, so its clients have, also those of another broker's listener of that
        name."""
        found = transport.get_extra_info("peername")
        address = Address.of_peer(found)
        forwarder = transport.get_extra_info(FORWARDER)
        is_local = address.is_loopback and (not forwarder or forwarder.is_loopback)
        is_private = is_local or transport.get_extra_info("ssl_object") is not None
        return cls(
            peer=str(found or "?") if address is UNKNOWN else str(address),
            address=address,
            certified=name_of(transport),
            forwarder=forwarder,
            is_introduced=transport.get_extra_info(RELAYED_BY) is not None,
            relayed_user=transport.get_extra_info(RELAYED_USER),
            has_tls=has_tls,
            may_send_password=is_private or allow_cleartext,
        )


class Authenticator:
    def __init__(
        self,
        access: AccessControl,
        identity: PeerIdentity,
        protocol: str,
        *,
        admitted: Callable[[Guard], None],
        revoked: Callable[[], None],
    ) -> None:
        """`admitted` is called once, with the guard of the connection. `revoked` is called when the user is
        deleted or its password changes."""
        self._access = access
        self._protocol = protocol
        self._admitted = admitted
        self._revoked = revoked
        self._entered: tuple[str, int] | None = None
        self._keys: dict[str, int] = {}
        self.identity = identity
        self.guard: Guard = CLOSED

    @property
    def is_required(self) -> bool:
        """Whether clients have to log in."""
        return self._access.is_required

    @property
    def user(self) -> str | None:
        """The authenticated user."""
        return None if self._entered is None else self._entered[0]

    def admit_anonymous(self) -> None:
        self._open(None)

    async def verify_password(self, user: str, password: str) -> Principal:
        """Check a plain password. Raises LoginFailed."""
        return await self._access.log_in(user, password, self.identity.peer)

    def verify_signature(self, access_key: str, messages: Iterable[bytes], signature: bytes) -> AccessKey:
        """Check the signature of a request: HMAC-SHA1 of one of these messages. Raises LoginFailed."""
        return self._access.access_keys.verify(access_key, messages, signature)

    def admit_key(self, key: AccessKey) -> bool:
        """Admit the user of the key, as `admit` does. Every request of a connection may have a key of its
        own; true if this one is new. When one of them is removed, the connection is revoked."""
        if key.name in self._keys:
            return False
        self.admit(Principal(key.user))
        self._keys[key.name] = self._access.key_sessions.enter(key.name, self._revoke)
        return True

    async def refresh_users(self) -> None:
        """Learn of users that another broker has changed."""
        await self._access.refresh()

    def scram(self, mechanism: Mechanism) -> ScramServer:
        return self._access.scram(mechanism)

    def admit(self, principal: Principal) -> None:
        """Raises LoginFailed if the user has too many connections, or the connection belongs to another
        user."""
        if self._entered is not None:
            if self._entered[0] != principal.name:
                raise LoginFailed("this connection belongs to another user")
            return
        number = self._access.sessions.enter(
            principal.name, self._revoke, is_relayed=self.identity.is_relayed
        )
        self._entered = (principal.name, number)
        self._open(principal)

    def prove(self, mechanism: str) -> ProvenUser:
        """For other brokers of the cluster. The user has just logged in, with this mechanism."""
        assert self._entered is not None
        return self._access.proven_users.prove(self._entered[0], mechanism)

    def admit_proven(self, user: ProvenUser, *, has_tls: bool) -> None:
        """Admit a user who has logged in at another broker. Raises LoginFailed as `admit` does, or if the
        user could not log in here."""
        self._access.proven_users.check(user, has_tls=has_tls)
        self.admit(Principal(user.name))

    def record(self, user: str, mechanism: str, failure: LoginFailed | None = None) -> None:
        """Write the outcome of a login to the audit log."""
        self._access.record_login(user, self.identity.peer, self._protocol, mechanism, failure)

    def close(self) -> None:
        """The connection is lost: drop all references to it."""
        self._admitted = self._revoked = noop
        if self._entered is not None:
            self._access.sessions.exit(*self._entered)
            self._entered = None
        for key, number in self._keys.items():
            self._access.key_sessions.exit(key, number)
        self._keys.clear()

    def _open(self, principal: Principal | None) -> None:
        self.guard = self._access.guard(principal, self.identity.peer, self._protocol)
        self._admitted(self.guard)

    def _revoke(self) -> None:
        self._revoked()
