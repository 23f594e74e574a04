"""TLS to a broker: certificates, the handshake, and messages for its failures."""

import socket
import ssl

from posthouse.client.addresses import Node
from posthouse.client.errors import (
    BadArgument,
    BrokerSilent,
    BrokerUnreachable,
    ClientError,
    IncompatibleBroker,
    NotTrusted,
)
from posthouse.client.security import Security

_EXPIRED = "the certificate of the broker at {node} has expired; ask its operator for a new one"
_OTHER_NAME = (
    "the certificate of the broker at {node} is for another name than {host!r}; reach it by a name that the "
    "certificate is for"
)
_NO_AUTHORITY = (
    "no trusted authority has signed the certificate of the broker at {node}; name its authority with "
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
    "TLSV1_ALERT_UNKNOWN_CA": "the broker at {node} does not trust the authority of your certificate; "
    "use another one",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker at {node} does not accept your certificate; use another one",
}
_BY_REASON["SSLV3_ALERT_CERTIFICATE_UNKNOWN"] = _BY_REASON["SSLV3_ALERT_BAD_CERTIFICATE"]
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""OpenSSL's errors for bytes that are not TLS."""


def tls_context(security: Security) -> ssl.SSLContext:
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
        # With an empty password for the key: otherwise OpenSSL would prompt on the terminal, and wait.
        context.load_cert_chain(security.certificate, key, password="")
    except ssl.SSLError:
        raise BadArgument(
            f"{security.certificate} and {key} are not a certificate and its key, in PEM and without password"
        ) from None
    except OSError as error:
        raise BadArgument(f"{security.certificate} or {key} cannot be read: {error.strerror}") from None
    return context


def encrypted(connected: socket.socket, tls: ssl.SSLContext, node: Node) -> ssl.SSLSocket:
    """The socket after its TLS handshake; on failure the given one is closed."""
    try:
        return tls.wrap_socket(connected, server_hostname=node.host)
    except TimeoutError:
        connected.close()
        raise BrokerSilent(f"what answers at {node} does not speak TLS, or not in time") from None
    except OSError as error:
        connected.close()
        raise refusal(error, node) or BrokerUnreachable(
            f"the broker at {node} ended the connection when it was to be encrypted; does it speak TLS there?"
        ) from None
    except BaseException:
        connected.close()
        raise


def refusal(error: Exception, node: Node) -> ClientError | None:
    """The client error for a known TLS error."""
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return IncompatibleBroker(
            f"what answers at {node} does not speak TLS; give the address of a TLS listener, or leave "
            "out --tls, --ca and --certificate"
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
