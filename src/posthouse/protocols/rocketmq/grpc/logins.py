"""Signed calls: how clients of the gRPC protocol log in. Every call is signed for itself:

    x-mq-date-time   what is signed, a time as the client formats it
    authorization    MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=HEX

The time is not compared with the broker's: clients write local time as if it was UTC. TLS is what protects a
signature from those who would repeat it.
"""

import re
from typing import Final

from posthouse.model.errors import LoginFailed
from posthouse.protocols.authenticator import Authenticator
from posthouse.protocols.grpc.metadata import Metadata

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
MECHANISM: Final = "access-key"
"""In the audit log."""
_SIGNED: Final = re.compile(
    r"MQv2-HMAC-SHA1 Credential=([^,/ ]{1,256})(?:/[^,]{0,256})?, ?SignedHeaders=x-mq-date-time, ?"
    r"Signature=([0-9a-fA-F]{40})"
)


class SignedCalls:
    """The logins of one connection, which belongs to the user of its first call."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._last: tuple[str, str] | None = None
        """Clients sign again only when the second has changed."""

    def check(self, metadata: Metadata) -> None:
        """Raises LoginFailed."""
        said, date = metadata.get(AUTHORIZATION) or "", metadata.get(DATE_TIME) or ""
        if (said, date) == self._last:
            return
        found = _SIGNED.fullmatch(said)
        if found is None:
            raise LoginFailed("calls have to be signed here: the client needs an access key and its secret")
        name, signature = found.groups()
        authenticator = self._authenticator
        try:
            signed = [date.encode(errors="replace")]
            key = authenticator.verify_signature(name, signed, bytes.fromhex(signature))
            if authenticator.admit_key(key):
                authenticator.record(key.user, f"{MECHANISM} {name}")
        except LoginFailed as failure:
            # Who has sent it is not known; the key that was named helps to find out.
            authenticator.record(name, MECHANISM, failure)
            raise
        self._last = said, date
