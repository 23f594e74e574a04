"""What two brokers say to each other when one has connected to the peer listener of the other.

The broker that listens sends a challenge. The broker that dials says what the connection is for, and proves
with the secret of the cluster that the words are its own. The other one answers with one byte, and a proof of
its own unless the byte says why it refuses. Both proofs contain the challenge and a number that the dialling
broker has chosen, so that neither can be used again.
"""

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any
from uuid import UUID

from posthouse.model.address import Address
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import COORDINATOR, Scope

MAGIC = b"POSTHOUSE-PEER-1"
CHALLENGE_BYTES = len(MAGIC) + 32
PROOF_BYTES = 32
LENGTH = Struct(">H")
_MOST_WORDS = 4096
_RELAY, _TRANSFER, _HINTS = "relay", "transfer", "hints"
_DIALLING, _LISTENING = b"standby", b"holder"
"""In the proofs, so that one is never the other. The words are those of the first version."""


_WELCOME = b"\x00"
VERDICT_BYTES = len(_WELCOME)


class Refusal(IntEnum):
    """Why a broker refuses a connection of another. The number is the byte that it answers with."""

    NOT_HOLDER = 1
    NO_SUCH_LISTENER = 2
    WRONG_SECRET = 3
    NOT_A_REQUEST = 4
    NOT_READY = 5


_SENTENCES: dict[int, str] = {
    Refusal.NOT_HOLDER: "the broker there does not hold the scope now",
    Refusal.NO_SUCH_LISTENER: "the broker there has no listener of this name: all brokers need the same ones",
    Refusal.WRONG_SECRET: "the broker there has another secret: it belongs to another cluster",
    Refusal.NOT_A_REQUEST: "the broker there does not understand the request",
    Refusal.NOT_READY: "the broker there does not serve yet, or not any more",
}


class PeerRefused(Exception):
    """The other side is no broker of this cluster, or does not hold the scope."""

    def __init__(self, reason: str, refusal: Refusal = Refusal.NOT_A_REQUEST) -> None:
        """`refusal` is what the other side is told."""
        super().__init__(reason)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A client's connection, passed on as it is."""

    listener: str
    """The name of the listener that the client has connected to."""
    client: Address

    @property
    def scope(self) -> Scope:
        return COORDINATOR

    def __str__(self) -> str:
        return f"connections of {self.listener}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPassage:
    """Some requests of a client that stays connected to the dialling broker. There is no TLS in them."""

    broker: UUID
    """The incarnation of the dialling broker."""
    listener: str
    client: Address
    user: ProvenUser | None
    """Has logged in at the dialling broker; None if no user has."""
    scope: Scope = COORDINATOR
    """The listening broker has to hold it."""
    takes_refusals: bool = True
    """Whether the dialling broker knows what a refused request is: see `relaying`."""

    def __str__(self) -> str:
        return f"requests of {self.listener} for {self.scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPassage:
    """A client's connection, for which the dialling broker has done the login. There is no TLS in it."""

    broker: UUID
    """The incarnation of the dialling broker."""
    listener: str
    client: Address
    user: ProvenUser | None
    """Has logged in at the dialling broker; None if login is not required there."""
    scope: Scope
    """The listening broker has to hold it."""

    def __str__(self) -> str:
        return f"connections of {self.listener} for {self.scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HintPassage:
    """Hints of both brokers to each other."""

    broker: UUID
    """The incarnation of the dialling broker."""

    def __str__(self) -> str:
        return "hints"


ClientPassage = Passage | RelayPassage | TransferPassage
"""What a connection in the name of a client is for."""
AnyPassage = ClientPassage | HintPassage
"""What a connection between two brokers is for."""


def new_challenge() -> bytes:
    return MAGIC + os.urandom(CHALLENGE_BYTES - len(MAGIC))


def check_challenge(challenge: bytes) -> None:
    if not challenge.startswith(MAGIC):
        raise PeerRefused("there is no broker at its address")


def request(secret: bytes, challenge: bytes, passage: AnyPassage) -> tuple[bytes, bytes]:
    """What the dialling broker sends, and the words in it that the other one has to prove it has read. Raises
    ValueError if they are too long, for which the name of the user may be the reason."""
    words = json.dumps(_said(passage) | {"number": os.urandom(16).hex()}).encode()
    if len(words) > _MOST_WORDS:
        raise ValueError(f"another broker is told at most {_MOST_WORDS} bytes, and these are {len(words)}")
    return LENGTH.pack(len(words)) + words + _proof(secret, _DIALLING, challenge, words), words


def _said(passage: AnyPassage) -> dict[str, Any]:
    if isinstance(passage, HintPassage):
        return {"kind": _HINTS, "broker": str(passage.broker)}
    said: dict[str, Any] = {
        "listener": passage.listener,
        "host": passage.client.host,
        "port": passage.client.port,
    }
    if isinstance(passage, Passage):
        return said
    said |= {
        "broker": str(passage.broker),
        "user": None if passage.user is None else _said_of(passage.user),
        "scope": passage.scope.name,
    }
    if isinstance(passage, TransferPassage):
        return said | {"kind": _TRANSFER}
    return said | {"kind": _RELAY, "takes_refusals": passage.takes_refusals}


def _said_of(user: ProvenUser) -> dict[str, Any]:
    credential = None if user.credential is None else user.credential.hex()
    return {"name": user.name, "mechanism": user.mechanism, "credential": credential}


def _user(said: dict[str, Any]) -> ProvenUser:
    credential = said["credential"]
    return ProvenUser(
        name=said["name"],
        mechanism=said["mechanism"],
        credential=None if credential is None else bytes.fromhex(credential),
    )


def size_of_words(length: bytes) -> int:
    (size,) = LENGTH.unpack(length)
    if not 0 < size <= _MOST_WORDS:
        raise PeerRefused("it does not speak as a broker does")
    return int(size)


def read_request(secret: bytes, challenge: bytes, words: bytes, proof: bytes) -> AnyPassage:
    """Raises PeerRefused unless a broker of this cluster has sent it in answer to this challenge."""
    if not hmac.compare_digest(proof, _proof(secret, _DIALLING, challenge, words)):
        raise PeerRefused("it does not know the secret of this cluster", Refusal.WRONG_SECRET)
    said = json.loads(words)
    kind = said.get("kind")
    if kind == _HINTS:
        return HintPassage(broker=UUID(said["broker"]))
    if kind not in (None, _RELAY, _TRANSFER):
        raise PeerRefused(f"it asks for {kind!r}, which this version does not know")
    client = Address(said["host"], said["port"])
    if kind == _RELAY:
        return RelayPassage(
            broker=UUID(said["broker"]),
            listener=said["listener"],
            client=client,
            user=None if said["user"] is None else _user(said["user"]),
            scope=Scope(said.get("scope", COORDINATOR.name)),
            takes_refusals=said.get("takes_refusals", False),
        )
    if kind == _TRANSFER:
        return TransferPassage(
            broker=UUID(said["broker"]),
            listener=said["listener"],
            client=client,
            user=None if said["user"] is None else _user(said["user"]),
            scope=Scope(said["scope"]),
        )
    return Passage(listener=said["listener"], client=client)


def welcome(secret: bytes, challenge: bytes, words: bytes) -> bytes:
    return _WELCOME + _proof(secret, _LISTENING, challenge, words)


def refused(refusal: Refusal) -> bytes:
    return bytes([refusal])


def check_verdict(verdict: bytes) -> None:
    """Raises PeerRefused unless a welcome follows. The verdict is not authenticated: it only explains."""
    if verdict != _WELCOME:
        raise PeerRefused(
            _SENTENCES.get(verdict[0], "the broker there refuses, for a reason that is unknown here")
        )


def check_welcome(secret: bytes, challenge: bytes, words: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(proof, _proof(secret, _LISTENING, challenge, words)):
        raise PeerRefused("the broker at its address does not know the secret of this cluster")


def _proof(secret: bytes, role: bytes, challenge: bytes, words: bytes) -> bytes:
    return hmac.digest(secret, role + challenge + words, hashlib.sha256)
