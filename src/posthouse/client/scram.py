"""SCRAM (RFC 5802, 7677), the client's side: how a password is proved without telling it. Sans-IO.

The broker proves in return that it knows the user. What it asks for is bounded: one that is not what it
seems must not keep us computing for hours, nor get a proof that is easily guessed from.
"""

import hashlib
import hmac
import os
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable

from posthouse.client.errors import LoginRefused
from posthouse.client.security import Mechanism

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
_NONCE_BYTES = 24
_NO_CHANNEL_BINDING = b"n,,"
_DIGESTS = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}
_FIRST = re.compile(rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]{1,9})(?:,.*)?")
_FINAL = re.compile(rb"v=(?P<signature>[^,]+)(?:,.*)?")

RandomBytes = Callable[[int], bytes]


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(_DIGESTS[mechanism], password.encode(), salt, iterations)


class Proof:
    """One login: `first` is sent, `final` is the answer to what comes, `check` looks at what comes last."""

    def __init__(
        self, mechanism: Mechanism, user: str, password: str, random: RandomBytes = os.urandom
    ) -> None:
        self._digest = _DIGESTS[mechanism]
        self._mechanism = mechanism
        self._password = password
        self._nonce = b64encode(random(_NONCE_BYTES))
        name = user.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=%b,r=%b" % (name, self._nonce)
        self._signature = b""

    def first(self) -> bytes:
        return _NO_CHANNEL_BINDING + self._bare

    def final(self, answer: bytes) -> bytes:
        """Raises LoginRefused. Slow on purpose."""
        found = _FIRST.fullmatch(answer)
        if found is None or not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise LoginRefused("the broker's part of the login cannot be read; is it the right address?")
        iterations = int(found["iterations"])
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise LoginRefused(
                f"the broker asks for {iterations} iterations to prove a password; from {LEAST_ITERATIONS} "
                f"to {MOST_ITERATIONS} are reasonable"
            )
        salted = salted_password(self._mechanism, self._password, _decoded(found["salt"]), iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        without_proof = b"c=%b,r=%b" % (b64encode(_NO_CHANNEL_BINDING), found["nonce"])
        signed = b",".join((self._bare, answer, without_proof))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored_key, signed), strict=True))
        return without_proof + b",p=" + b64encode(proof)

    def check(self, answer: bytes) -> None:
        """Raises LoginRefused where the broker does not know the user's password itself."""
        found = _FINAL.fullmatch(answer)
        if (
            found is None
            or not self._signature
            or not hmac.compare_digest(_decoded(found["signature"]), self._signature)
        ):
            raise LoginRefused(
                "whoever answers does not know your password and is not your broker; check the address"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise LoginRefused(
            "the broker's part of the login cannot be read; is it the right address?"
        ) from None
