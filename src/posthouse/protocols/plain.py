"""PLAIN (RFC 4616): a login in one message, with the password in the clear.

The message is: authorization id, NUL, user name, NUL, password.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class PlainLogin:
    """Bytes, because protocols differ in their handling of invalid UTF-8.

    Has no repr, so that it cannot get into a log.
    """

    as_whom: bytes
    user: bytes
    password: bytes


def parse_plain(message: bytes) -> PlainLogin | None:
    """None if the message is malformed."""
    parts = message.split(b"\0")
    return PlainLogin(*parts) if len(parts) == 3 else None
