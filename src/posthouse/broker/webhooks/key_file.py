"""The file with the key that encrypts secrets: one line, Base64 of 32 bytes.

A broker whose settings name no file makes one beside its data when the first webhook is created, readable by
its own user only. The file is complete or absent: it is written under another name, synced and renamed.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import Final

from posthouse.broker.webhooks.sealing import KEY_BYTES
from posthouse.model.errors import InvalidConfig
from posthouse.model.scram import RandomBytes

NAME: Final = "secrets.key"
_OWNER_ONLY: Final = 0o600


def read_key(path: Path) -> bytes:
    """Raises InvalidConfig, and OSError if there is no such file."""
    try:
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidConfig(
            f"{path} has no key: it must be one line with Base64 of {KEY_BYTES} bytes "
            f"(openssl rand -base64 {KEY_BYTES})"
        )
    return key


def make_key(path: Path, random: RandomBytes) -> bytes:
    """Durable on return."""
    key = random(KEY_BYTES)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # of a broker that ended while it made one
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64encode(key) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return key
