"""The way into a broker: the certificate is checked, then somebody logs in."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

from posthouse.client.addresses import Node
from posthouse.client.errors import (
    BadArgument,
    BrokerSilent,
    BrokerUnreachable,
    ClientError,
    IncompatibleBroker,
    LoginRefused,
    NotTrusted,
)
from posthouse.client.scram import Proof
from posthouse.client.security import Mechanism, Security
from posthouse.model.scram import Mechanism as ScramMechanism
from posthouse.protocols.kafka.codec.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from posthouse.protocols.kafka.codec.generated.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from posthouse.client.connection import Connection

_UNSUPPORTED_MECHANISM = 33
_WRONG = "a wrong user name or password"

_EXPIRED = "the certificate of the broker at {node} has expired; ask whoever runs it for a new one"
_OTHER_NAME = (
    "the certificate of the broker at {node} is for another name than {host!r}; reach it by a name that the "
    "certificate is for"
)
_NO_AUTHORITY = (
    "nobody you trust has signed the certificate of the broker at {node}; name the authority that did with "
    "--ca FILE"
)
_BY_VERIFY_CODE = {
    9: "the certificate of the broker at {node} is not valid yet; is the clock of one of the machines wrong?",
    10: _EXPIRED,
    18: _NO_AUTHORITY,
    19: _NO_AUTHORITY,
    20: _NO_AUTHORITY,
    21: _NO_AUTHORITY,
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
_BY_REASON = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker at {node} wants to see your certificate; name it with "
    "--certificate FILE and --key FILE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "your certificate has expired; ask for a new one",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker at {node} does not trust whoever signed your certificate; "
    "use another one",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker at {node} does not accept your certificate; use another one",
}
_BY_REASON["SSLV3_ALERT_CERTIFICATE_UNKNOWN"] = _BY_REASON["SSLV3_ALERT_BAD_CERTIFICATE"]
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""What TLS makes of bytes that are something else."""


class Entrance:
    """For all connections of one client. Raises BadArgument where files are not what they should be."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._tls = _context(security) if security.is_encrypted else None

    @property
    def is_anonymous(self) -> bool:
        return self._security.user is None

    def pass_through(self, connected: socket.socket, node: Node) -> socket.socket:
        """The socket to go on with; the given one is closed where that fails."""
        if self._tls is None:
            return connected
        try:
            return self._tls.wrap_socket(connected, server_hostname=node.host)
        except TimeoutError:
            connected.close()
            raise BrokerSilent(f"what answers at {node} does not speak TLS, or not in time") from None
        except OSError as error:
            connected.close()
            raise refusal(error, node) or BrokerUnreachable(
                f"the broker at {node} ended the connection when it was to be encrypted; "
                "does it speak TLS there?"
            ) from None
        except BaseException:
            connected.close()
            raise

    def log_in(self, connection: Connection) -> None:
        """Raises LoginRefused."""
        security = self._security
        if security.user is None:
            return
        self._check_cleartext(connection)
        answer = connection.ask(SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse)
        if answer.error_code == _UNSUPPORTED_MECHANISM:
            raise LoginRefused(
                f"the broker at {connection.node} lets nobody log in with {security.mechanism}; "
                f"it has {', '.join(answer.mechanisms) or 'no logins'}"
            )
        if answer.error_code:
            raise LoginRefused(
                f"nobody has to log in at {connection.node}, or your certificate says already who you are; "
                "leave out the user"
            )
        if security.mechanism is Mechanism.PLAIN:
            _say(connection, b"\0".join((b"", security.user.encode(), security.password.encode())))
            return
        proof = Proof(ScramMechanism(security.mechanism), security.user, security.password)
        challenge = _say(connection, proof.first())
        proof.check(_say(connection, proof.final(challenge)))

    def _check_cleartext(self, connection: Connection) -> None:
        security = self._security
        if security.mechanism is not Mechanism.PLAIN or security.is_encrypted:
            return
        if not security.allow_cleartext_password and not ipaddress.ip_address(connection.peer).is_loopback:
            raise BadArgument(
                f"PLAIN would send your password to {connection.node} for everybody on the way to read; "
                "use TLS, or SCRAM-SHA-256"
            )


def _context(security: Security) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=security.ca)
    except ssl.SSLError:
        raise BadArgument(f"{security.ca} holds no certificate of an authority in PEM") from None
    except OSError as error:
        raise BadArgument(f"{security.ca} cannot be read: {error.strerror}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if security.certificate is None:
        return context
    key = security.key or security.certificate
    try:
        # Without a password for the key: OpenSSL would ask the terminal, and wait.
        context.load_cert_chain(security.certificate, key, password="")
    except ssl.SSLError:
        raise BadArgument(
            f"{security.certificate} and {key} are not a certificate and its key, in PEM and without password"
        ) from None
    except OSError as error:
        raise BadArgument(f"{security.certificate} or {key} cannot be read: {error.strerror}") from None
    return context


def refusal(error: Exception, node: Node) -> ClientError | None:
    """The error for what TLS complains of, where it is known."""
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return IncompatibleBroker(
            f"what answers at {node} does not speak TLS; say the address that does, or come without --tls, "
            "--ca and --certificate"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = _BY_VERIFY_CODE.get(error.verify_code)
        if sentence is None:
            sentence = f"the certificate of the broker at {{node}} is not valid ({error.verify_message})"
    elif isinstance(error, ssl.SSLError):
        sentence = _BY_REASON.get(error.reason or "")
    else:
        return None
    return None if sentence is None else NotTrusted(sentence.format(node=node, host=node.host))


def _say(connection: Connection, message: bytes) -> bytes:
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
    if answer.error_code:
        reason = (answer.error_message or _WRONG).removeprefix("Authentication failed: ").rstrip(".")
        raise LoginRefused(f"the broker at {connection.node} does not let you in: {reason}")
    return bytes(answer.auth_bytes)
