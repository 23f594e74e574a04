"""SCRAM (RFC 5802, 7677), the client's side: proves a password without sending it. Sans-IO.

The broker proves in return that it knows the user. Its iteration count is bounded: a malicious server must
not keep the client computing for hours, nor get a proof that is easy to crack.
"""

import hmac
import os
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from posthouse.client.errors import LoginRefused
from posthouse.model.scram import (
    NONCE_BYTES,
    Mechanism,
    RandomBytes,
    client_key_of,
    masked,
    salted_password,
    server_key_of,
    signature,
    stored_key_of,
)

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
_NO_CHANNEL_BINDING = b"n,,"
_FIRST = re.compile(rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]{1,9})(?:,.*)?")
_FINAL = re.compile(rb"v=(?P<signature>[^,]+)(?:,.*)?")


class Proof:
    """One login: send `first`, answer the challenge with `final`, verify the last answer with `check`."""

    def __init__(
        self, mechanism: Mechanism, user: str, password: str, random: RandomBytes = os.urandom
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = b64encode(random(NONCE_BYTES))
        name = user.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=%b,r=%b" % (name, self._nonce)
        self._signature = b""

    def first(self) -> bytes:
        return _NO_CHANNEL_BINDING + self._bare

    def final(self, answer: bytes) -> bytes:
        """The answer to the broker's challenge. Slow on purpose. Raises LoginRefused."""
        found = _FIRST.fullmatch(answer)
        if found is None or not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise LoginRefused("the broker's part of the login cannot be read; is it the right address?")
        iterations = int(found["iterations"])
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise LoginRefused(
                f"the broker asks for {iterations} iterations to prove a password; from {LEAST_ITERATIONS} "
                f"to {MOST_ITERATIONS} are reasonable"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, _decoded(found["salt"]), iterations)
        client_key = client_key_of(mechanism, salted)
        stored_key = stored_key_of(mechanism, client_key)
        without_proof = b"c=%b,r=%b" % (b64encode(_NO_CHANNEL_BINDING), found["nonce"])
        signed = b",".join((self._bare, answer, without_proof))
        self._signature = signature(mechanism, server_key_of(mechanism, salted), signed)
        proof = masked(client_key, signature(mechanism, stored_key, signed))
        return without_proof + b",p=" + b64encode(proof)

    def check(self, answer: bytes) -> None:
        """Raises LoginRefused if the broker does not prove that it knows the user's verifier."""
        found = _FINAL.fullmatch(answer)
        if (
            found is None
            or not self._signature
            or not hmac.compare_digest(_decoded(found["signature"]), self._signature)
        ):
            raise LoginRefused(
                "the server does not know your password and is not your broker; check the address"
            )


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise LoginRefused(
            "the broker's part of the login cannot be read; is it the right address?"
        ) from None
