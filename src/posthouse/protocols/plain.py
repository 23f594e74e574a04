"""PLAIN (RFC 4616): a login in one message, with the password as it is.

Whom to act as, who it is, and the password, each behind a NUL but the first.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class PlainLogin:
    """Bytes, because protocols differ in what they do where these are not UTF-8.

    Has no repr that could end up in a log.
    """

    as_whom: bytes
    user: bytes
    password: bytes


def parse_plain(message: bytes) -> PlainLogin | None:
    """None where the message cannot be read."""
    parts = message.split(b"\0")
    return PlainLogin(*parts) if len(parts) == 3 else None
