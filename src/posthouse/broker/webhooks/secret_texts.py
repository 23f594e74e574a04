"""Secrets as people and libraries of Standard Webhooks write them: `whsec_` and Base64 of the key."""

import base64
import binascii
from typing import Final

from posthouse.model.errors import InvalidCredential
from posthouse.model.scram import RandomBytes

_PREFIX: Final = "whsec_"
_NEW_BYTES: Final = 32
_LEAST_BYTES: Final = 24
_MOST_BYTES: Final = 64
"""Both are limits of the specification."""


def new_secret(random: RandomBytes) -> bytes:
    return random(_NEW_BYTES)


def shown_secret(key: bytes) -> str:
    return _PREFIX + base64.b64encode(key).decode()


def parsed_secret(text: str) -> bytes:
    """Raises InvalidCredential."""
    if not text.startswith(_PREFIX):
        raise InvalidCredential(f"a secret begins with {_PREFIX}, and Base64 follows")
    try:
        key = base64.b64decode(text[len(_PREFIX) :], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidCredential(f"what follows {_PREFIX} is not Base64") from None
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise InvalidCredential(
            f"a secret has from {_LEAST_BYTES} to {_MOST_BYTES} bytes, and this one has {len(key)}"
        )
    return key
