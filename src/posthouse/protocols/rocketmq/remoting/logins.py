"""Signed requests: how remoting's clients log in. Every request is signed for itself:

    AccessKey    which secret
    Signature    base64 of the HMAC-SHA1 of the values of all other fields, in the order of their names, and
                 then the body

`SecurityToken`, which clients with temporary keys send, is one of these fields and says nothing here.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from posthouse.model.errors import LoginFailed
from posthouse.protocols.authenticator import Authenticator
from posthouse.protocols.rocketmq.codec.codes import UNIQUE_KEY_QUERY
from posthouse.protocols.rocketmq.codec.commands import Command

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
MECHANISM: Final = "access-key"
"""In the audit log."""
_LONGEST_SIGNATURE: Final = 100


class SignedRequests:
    """The logins of one connection, which belongs to the user of its first request."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def check(self, request: Command) -> None:
        """Raises LoginFailed."""
        fields = request.fields
        name, signature = fields.get(ACCESS_KEY), fields.get(SIGNATURE)
        if name is None or signature is None:
            raise LoginFailed(
                "requests have to be signed here: the client needs an access key and its secret"
            )
        authenticator = self._authenticator
        try:
            key = authenticator.verify_signature(name, _signed(request), _decoded(signature))
            if authenticator.admit_key(key):
                authenticator.record(key.user, f"{MECHANISM} {name}")
        except LoginFailed as failure:
            # Who has sent it is not known; the key that was named helps to find out.
            authenticator.record(name, MECHANISM, failure)
            raise


def _decoded(signature: str) -> bytes:
    try:
        if len(signature) <= _LONGEST_SIGNATURE:
            return b64decode(signature, validate=True)
    except (binascii.Error, ValueError):  # the latter where it is not ASCII
        pass
    raise LoginFailed("the signature is not base64")


def _signed(request: Command) -> Iterator[bytes]:
    """What may have been signed. Clients before 4.9.4 add one field when they have signed the request, and
    clients in other languages have version numbers of their own."""
    fields = request.fields
    names = sorted(fields)
    names.remove(SIGNATURE)
    yield _content(request, names)
    if UNIQUE_KEY_QUERY in fields:
        names.remove(UNIQUE_KEY_QUERY)
        yield _content(request, names)


def _content(request: Command, names: list[str]) -> bytes:
    fields = request.fields
    text = "".join([fields[name] for name in names])
    return b"".join((text.encode(errors="replace"), request.body))
