"""SCRAM's keys (RFC 5802, 7677), derived from a password. Pure; both sides of a login derive the same keys.

    salted password ─┬─ client key ─── stored key
                     └─ server key

A client proves that it has the client key, a broker that it has the server key. A broker stores the stored
key and the server key: they are enough to verify the proof, but not to create it.
"""

import hashlib
import hmac
from collections.abc import Callable
from enum import StrEnum

DEFAULT_ITERATIONS = 16_384
SALT_BYTES = 24
NONCE_BYTES = 24
"""Bytes of each side's part of the nonce."""

RandomBytes = Callable[[int], bytes]


class Mechanism(StrEnum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        return "sha256" if self is Mechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        return 32 if self is Mechanism.SHA_256 else 64


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Slow on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def client_key_of(mechanism: Mechanism, salted: bytes) -> bytes:
    return signature(mechanism, salted, b"Client Key")


def server_key_of(mechanism: Mechanism, salted: bytes) -> bytes:
    return signature(mechanism, salted, b"Server Key")


def stored_key_of(mechanism: Mechanism, client_key: bytes) -> bytes:
    return hashlib.new(mechanism.digest, client_key).digest()


def signature(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.digest)


def masked(key: bytes, signature: bytes) -> bytes:
    """A proof from a client key, or the client key from a proof: the operation is its own inverse."""
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))
