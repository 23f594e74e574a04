"""What two brokers say to each other before the bytes of a client follow.

The holder sends a challenge. The standby names the listener and the client, and proves with the secret of the
cluster that the words are its own. The holder answers with one byte, and a proof of its own unless the byte
says why it refuses. Both proofs contain the challenge and a number that the standby has chosen, so that
neither can be used again.
"""

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from posthouse.model.address import Address

MAGIC = b"POSTHOUSE-PEER-1"
CHALLENGE_BYTES = len(MAGIC) + 32
PROOF_BYTES = 32
LENGTH = Struct(">H")
_MOST_WORDS = 1024
_STANDBY, _HOLDER = b"standby", b"holder"


_WELCOME = b"\x00"
VERDICT_BYTES = len(_WELCOME)


class Refusal(IntEnum):
    """Why a holder refuses a connection. The number is the byte that it answers with."""

    NOT_HOLDER = 1
    NO_SUCH_LISTENER = 2
    WRONG_SECRET = 3
    NOT_A_REQUEST = 4


_SENTENCES: dict[int, str] = {
    Refusal.NOT_HOLDER: "the broker there does not serve now",
    Refusal.NO_SUCH_LISTENER: "the broker there has no listener of this name: all brokers need the same ones",
    Refusal.WRONG_SECRET: "the broker there has another secret: it belongs to another cluster",
    Refusal.NOT_A_REQUEST: "the broker there does not understand the request",
}


class PeerRefused(Exception):
    """The other side is no broker of this cluster, or does not hold the lease."""

    def __init__(self, reason: str, refusal: Refusal = Refusal.NOT_A_REQUEST) -> None:
        """`refusal` is what the other side is told."""
        super().__init__(reason)
        self.refusal = refusal


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
        raise PeerRefused("it does not know the secret of this cluster", Refusal.WRONG_SECRET)
    said = json.loads(words)
    return Passage(listener=said["listener"], client=Address(said["host"], said["port"]))


def welcome(secret: bytes, challenge: bytes, words: bytes) -> bytes:
    return _WELCOME + _proof(secret, _HOLDER, challenge, words)


def refused(refusal: Refusal) -> bytes:
    return bytes([refusal])


def check_verdict(verdict: bytes) -> None:
    """Raises PeerRefused unless a welcome follows. Anybody can send a verdict: it is for people."""
    if verdict != _WELCOME:
        raise PeerRefused(
            _SENTENCES.get(verdict[0], "the broker there refuses, for a reason that is unknown here")
        )


def check_welcome(secret: bytes, challenge: bytes, words: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(proof, _proof(secret, _HOLDER, challenge, words)):
        raise PeerRefused("the broker at its address does not know the secret of this cluster")


def _proof(secret: bytes, role: bytes, challenge: bytes, words: bytes) -> bytes:
    return hmac.digest(secret, role + challenge + words, hashlib.sha256)
