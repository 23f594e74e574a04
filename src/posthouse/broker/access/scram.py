"""SCRAM (RFC 5802, 7677): stored verifiers, and the server's side of a login. Sans-IO.

Only a *verifier* of a password is stored: salt, number of iterations and two keys. A verifier can check a
login but is not enough to log in.
"""

import hmac
import os
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass

from posthouse.model.errors import InvalidCredential, LoginFailed
from posthouse.model.scram import (
    DEFAULT_ITERATIONS,
    NONCE_BYTES,
    SALT_BYTES,
    Mechanism,
    RandomBytes,
    client_key_of,
    masked,
    salted_password,
    server_key_of,
    signature,
    stored_key_of,
)

MIN_ITERATIONS = 4096
"""As in Kafka and the RFC."""
MAX_ITERATIONS = 100_000
"""Limit on the work that one login with a plain password costs the broker."""
_MAX_SALT_BYTES = 1024
_MAX_SALTED_BYTES = 1024
_MAX_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, repr=False)
class Verifier:
    """Has no repr, so that it cannot get into a log."""

    mechanism: Mechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def accepts(self, password: str) -> bool:
        """Check a plain password. Slow on purpose: not on the event loop."""
        salted = salted_password(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(_stored_key(self.mechanism, salted), self.stored_key)


def verifier_of(
    mechanism: Mechanism,
    password: str,
    *,
    iterations: int = DEFAULT_ITERATIONS,
    random: RandomBytes = os.urandom,
) -> Verifier:
    """Derive a verifier. Slow on purpose: not on the event loop."""
    salt = random(SALT_BYTES)
    check_cost(salt, iterations)
    return verifier_of_salted(
        mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations
    )


def verifier_of_salted(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Verifier:
    """A verifier from a salted password, computed by the client.

    As in Kafka, any length is accepted.
    """
    check_cost(salt, iterations)
    if not 0 < len(salted) <= _MAX_SALTED_BYTES:
        raise InvalidCredential(
            f"a salted password of {len(salted)} bytes; there must be from 1 to {_MAX_SALTED_BYTES}"
        )
    server_key = server_key_of(mechanism, salted)
    return Verifier(mechanism, salt, iterations, _stored_key(mechanism, salted), server_key)


def check_cost(salt: bytes, iterations: int, min_iterations: int = MIN_ITERATIONS) -> None:
    if not min_iterations <= iterations <= MAX_ITERATIONS:
        raise InvalidCredential(
            f"{iterations} iterations; there must be from {min_iterations} to {MAX_ITERATIONS}"
        )
    if not 0 < len(salt) <= _MAX_SALT_BYTES:
        raise InvalidCredential(f"a salt of {len(salt)} bytes; there must be from 1 to {_MAX_SALT_BYTES}")


FindVerifier = Callable[[str, Mechanism], Verifier]
"""Finds the verifier of a user, or a decoy: a login must not reveal which users exist."""

_FIRST = re.compile(
    rb"(?P<gs2>[ny],(?:a=(?P<authzid>[^,]*))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)"
)
_FINAL = re.compile(rb"(?P<bare>c=(?P<gs2>[^,]+),r=(?P<nonce>[^,]+)(?:,[^p].*)?),p=(?P<proof>[^,]+)")


class ScramServer:
    """One login: `first`, then `final`. Both return an answer or raise LoginFailed."""

    def __init__(self, mechanism: Mechanism, find: FindVerifier, random: RandomBytes = os.urandom) -> None:
        self.mechanism = mechanism
        self.user = ""
        self._find = find
        self._nonce = b64encode(random(NONCE_BYTES))
        self._gs2 = b""
        self._messages = b""
        self._verifier: Verifier | None = None

    def first(self, message: bytes) -> bytes:
        found = _FIRST.fullmatch(message) if len(message) <= _MAX_MESSAGE_BYTES else None
        if found is None:
            raise LoginFailed("a first SCRAM message that cannot be read")
        self.user = _name(found["user"])
        if found["authzid"] and _name(found["authzid"]) != self.user:
            raise LoginFailed("a login in the name of another user")
        self._gs2 = found["gs2"]
        self._nonce = found["nonce"] + self._nonce
        verifier = self._verifier = self._find(self.user, self.mechanism)
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, b64encode(verifier.salt), verifier.iterations)
        self._messages = found["bare"] + b"," + answer
        return answer

    def final(self, message: bytes) -> bytes:
        found = _FINAL.fullmatch(message) if len(message) <= _MAX_MESSAGE_BYTES else None
        if found is None or self._verifier is None:
            raise LoginFailed("a last SCRAM message that cannot be read")
        verifier, mechanism = self._verifier, self.mechanism
        try:
            gs2, proof = b64decode(found["gs2"], validate=True), b64decode(found["proof"], validate=True)
        except Base64Error:
            raise LoginFailed("a last SCRAM message that cannot be read") from None
        signed = self._messages + b"," + found["bare"]
        if len(proof) != mechanism.key_bytes:
            raise LoginFailed("a proof of the wrong length")
        client_key = masked(proof, signature(mechanism, verifier.stored_key, signed))
        is_known = hmac.compare_digest(stored_key_of(mechanism, client_key), verifier.stored_key)
        if not is_known or gs2 != self._gs2 or not hmac.compare_digest(found["nonce"], self._nonce):
            raise LoginFailed("a wrong user name or password")
        if self._find(self.user, mechanism) != verifier:
            raise LoginFailed("a password that was changed during the login")
        return b"v=" + b64encode(signature(mechanism, verifier.server_key, signed))


def _name(text: bytes) -> str:
    try:
        name = text.decode()
    except UnicodeDecodeError:
        raise LoginFailed("a user name that is not UTF-8") from None
    if re.search(r"=(?!2C|3D)", name):
        raise LoginFailed("a user name that cannot be read")
    return name.replace("=2C", ",").replace("=3D", "=")


def _stored_key(mechanism: Mechanism, salted: bytes) -> bytes:
    return stored_key_of(mechanism, client_key_of(mechanism, salted))
