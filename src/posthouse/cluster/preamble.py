"""What two brokers say to each other before the bytes of a client follow.

The holder sends a challenge. The standby names the listener and the client, and proves with the secret of the
cluster that the words are its own. The holder answers with a proof of its own. Both proofs contain the
challenge and a number that the standby has chosen, so that neither can be used again.
"""

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from struct import Struct

from posthouse.model.address import Address

MAGIC = b"POSTHOUSE-PEER-1"
CHALLENGE_BYTES = len(MAGIC) + 32
PROOF_BYTES = 32
LENGTH = Struct(">H")
_MOST_WORDS = 1024
_STANDBY, _HOLDER = b"standby", b"holder"


class PeerRefused(Exception):
    """The other side is no broker of this cluster, or does not hold the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A connection that is to be passed on."""

    listener: str
    """The name of the listener that the client has connected to."""
    client: Address


def new_challenge() -> bytes:
    return MAGIC + os.urandom(CHALLENGE_BYTES - len(MAGIC))


def check_challenge(challenge: bytes) -> None:
    if not challenge.startswith(MAGIC):
        raise PeerRefused("there is no broker at its address")


def request(secret: bytes, challenge: bytes, passage: Passage) -> tuple[bytes, bytes]:
    """What the standby sends, and the words in it that the holder has to prove it has read."""
    words = json.dumps(
        {
            "listener": passage.listener,
            "host": passage.client.host,
            "port": passage.client.port,
            "number": os.urandom(16).hex(),
        }
    ).encode()
    return LENGTH.pack(len(words)) + words + _proof(secret, _STANDBY, challenge, words), words


def size_of_words(length: bytes) -> int:
    (size,) = LENGTH.unpack(length)
    if not 0 < size <= _MOST_WORDS:
        raise PeerRefused("it does not speak as a broker does")
    return int(size)


def read_request(secret: bytes, challenge: bytes, words: bytes, proof: bytes) -> Passage:
    """Raises PeerRefused unless a broker of this cluster has sent it in answer to this challenge."""
    if not hmac.compare_digest(proof, _proof(secret, _STANDBY, challenge, words)):
        raise PeerRefused("it does not know the secret of this cluster")
    said = json.loads(words)
    return Passage(listener=said["listener"], client=Address(said["host"], said["port"]))


def welcome(secret: bytes, challenge: bytes, words: bytes) -> bytes:
    return _proof(secret, _HOLDER, challenge, words)


def check_welcome(secret: bytes, challenge: bytes, words: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(proof, welcome(secret, challenge, words)):
        raise PeerRefused("the broker at its address does not know the secret of this cluster")


def _proof(secret: bytes, role: bytes, challenge: bytes, words: bytes) -> bytes:
    return hmac.digest(secret, role + challenge + words, hashlib.sha256)
