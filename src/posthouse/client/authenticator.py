"""Authentication to a broker: the TLS handshake, if it is used, then a SASL login."""

import ipaddress
import socket
from typing import Protocol, TypeVar

from posthouse.client.addresses import Node
from posthouse.client.errors import BadArgument, LoginRefused
from posthouse.client.scram import Proof
from posthouse.client.security import SaslMechanism, Security
from posthouse.client.tls import encrypted, tls_context
from posthouse.model.scram import Mechanism as ScramMechanism
from posthouse.protocols.kafka.codec.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from posthouse.protocols.kafka.codec.generated.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from posthouse.protocols.kafka.codec.primitives import Message

_UNSUPPORTED_MECHANISM = 33
_WRONG = "a wrong user name or password"

T = TypeVar("T", bound=Message)


class LoginConnection(Protocol):
    """The connection that is logged in."""

    @property
    def node(self) -> Node: ...

    @property
    def peer(self) -> str: ...

    def ask(self, request: Message, answer: type[T]) -> T: ...


class ClientAuthenticator:
    """For all connections of one client. Raises BadArgument if certificate files are invalid."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._tls = tls_context(security) if security.is_encrypted else None

    @property
    def is_anonymous(self) -> bool:
        return self._security.user is None

    def encrypt(self, connected: socket.socket, node: Node) -> socket.socket:
        """The socket after the TLS handshake; on failure the given one is closed."""
        return connected if self._tls is None else encrypted(connected, self._tls, node)

    def log_in(self, connection: LoginConnection) -> None:
        """Log in with SASL. Raises LoginRefused."""
        security = self._security
        if security.user is None:
            return
        self._check_cleartext(connection)
        answer = connection.ask(SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse)
        if answer.error_code == _UNSUPPORTED_MECHANISM:
            raise LoginRefused(
                f"the broker at {connection.node} does not offer the mechanism {security.mechanism}; "
                f"it has {', '.join(answer.mechanisms) or 'no logins'}"
            )
        if answer.error_code:
            raise LoginRefused(
                f"the broker at {connection.node} does not require a login, or has authenticated you by your "
                "certificate; leave out the user"
            )
        if security.mechanism is SaslMechanism.PLAIN:
            _say(connection, b"\0".join((b"", security.user.encode(), security.password.encode())))
            return
        proof = Proof(ScramMechanism(security.mechanism), security.user, security.password)
        challenge = _say(connection, proof.first())
        proof.check(_say(connection, proof.final(challenge)))

    def _check_cleartext(self, connection: LoginConnection) -> None:
        security = self._security
        if security.mechanism is not SaslMechanism.PLAIN or security.is_encrypted:
            return
        if not security.allow_cleartext_password and not ipaddress.ip_address(connection.peer).is_loopback:
            raise BadArgument(
                f"PLAIN would send your password to {connection.node} in the clear; use TLS, or SCRAM-SHA-256"
            )


def _say(connection: LoginConnection, message: bytes) -> bytes:
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
    if answer.error_code:
        reason = (answer.error_message or _WRONG).removeprefix("Authentication failed: ").rstrip(".")
        raise LoginRefused(f"the broker at {connection.node} refused the login: {reason}")
    return bytes(answer.auth_bytes)
