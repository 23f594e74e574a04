"""What a peer can get wrong.

Malformed
├── BadFrame           the connection ends: where the next frame begins is unknown, or upstream would close
├── BadBody            a JSON body; the request fails
├── BadProperties      a properties string; the request fails
├── BadBatch           the body of a batch send; the request fails
├── BadStoredMessage   messages in log format
├── BadHost            an address that is neither IPv4 nor IPv6, or a port that does not exist
└── BadMessageId       an offset message id; the request fails

The same errors say that a value cannot be encoded, for instance because a length does not fit its field.
"""

from collections.abc import Sequence
from typing import Any


class Malformed(Exception):
    """Bytes that no client of RocketMQ sends, or a value that its formats cannot hold."""


class BadFrame(Malformed):
    """`commands` are those that were complete in the same chunk before the fault: they count."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.commands: Sequence[Any] = ()


class BadBody(Malformed):
    pass


class BadProperties(Malformed):
    pass


class BadBatch(Malformed):
    pass


class BadStoredMessage(Malformed):
    pass


class BadHost(Malformed):
    pass


class BadMessageId(Malformed):
    pass
