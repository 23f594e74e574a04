"""Recall handles: what the producer of a delayed message needs to recall it.

Base64 for URLs, with padding, of words that blanks separate: v1, topic, name of the broker, time at which the
message is due, its id (UNIQ_KEY, or "-"), its sequence, and a code over all that. Clients in Java read the
first five, to find the broker; for all others a handle is opaque.

The code tells that the broker has made the handle: there was such a message, and it was for that topic. Where
logins are required nobody else can make one.
"""

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final

from posthouse.broker.delayed_records import DelayedId
from posthouse.model.errors import BadRequest

KEY_PURPOSE: Final = "recall handles of RocketMQ"
_VERSION: Final = "v1"
_NO_ID: Final = "-"
_LONGEST_ID: Final = 128
_LONGEST: Final = 2048
_CODE_BYTES: Final = 16


class BadHandle(BadRequest):
    """What is no handle, or none that this broker has made."""

    def __init__(self) -> None:
        super().__init__("this is no recall handle of this broker; take the one in the answer to the send")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    topic: str
    """Its name in RocketMQ."""
    broker: str
    message_id: str
    """Empty if the message has none that fits."""
    delayed: DelayedId

    def encode(self, key: bytes) -> str:
        fits = self.message_id.isascii() and self.message_id.isalnum() and len(self.message_id) <= _LONGEST_ID
        id = self.message_id if fits else _NO_ID
        words = (
            _VERSION,
            self.topic,
            self.broker,
            str(self.delayed.due_ms),
            id,
            f"{self.delayed.sequence:x}",
        )
        text = " ".join(words)
        return urlsafe_b64encode(f"{text} {_code(text, key)}".encode()).decode()


def decode_handle(handle: str, key: bytes) -> RecallHandle:
    """Raises BadHandle."""
    text, _, code = _decoded(handle).rpartition(" ")
    if not hmac.compare_digest(_code(text, key).encode(), code.encode()):
        raise BadHandle
    _, topic, broker, due_ms, id, sequence = text.split(" ")
    return RecallHandle(
        topic=topic,
        broker=broker,
        message_id="" if id == _NO_ID else id,
        delayed=DelayedId(due_ms=int(due_ms), sequence=int(sequence, 16)),
    )


def _decoded(handle: str) -> str:
    try:
        if len(handle) <= _LONGEST:
            return urlsafe_b64decode(handle).decode()
    except (binascii.Error, ValueError):  # the latter where it is not ASCII, or not UTF-8
        pass
    raise BadHandle


def _code(text: str, key: bytes) -> str:
    return hmac.digest(key, text.encode(), "sha256")[:_CODE_BYTES].hex()
