"""Secrets at rest: encrypted with AES-256-GCM by a key that is not in the storage. A sealed secret is

    key id      8   the first bytes of SHA-256 of the key: tells a wrong key from damaged bytes
    nonce      12   random
    ciphertext      with the tag of 16 bytes behind it; the name of the webhook is authenticated, too

So a copy of the storage, or of its backup, tells no secrets, and one webhook cannot be given the secret of
another. Who has the key and the storage can read them.
"""

import hashlib
from typing import Final

from posthouse.model.errors import InvalidConfig, Unavailable
from posthouse.model.scram import RandomBytes

KEY_BYTES: Final = 32
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_INSTALL: Final = 'pip install "posthouse[webhooks]"'


class Sealing:
    def __init__(self, key: bytes, random: RandomBytes) -> None:
        """Raises InvalidConfig if the package of the extra is missing."""
        try:
            # An optional extra: brokers without webhooks do not need it.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise InvalidConfig(
                f"webhooks need the package cryptography for their secrets: {_INSTALL} ({error})"
            ) from None
        self._cipher = AESGCM(key)
        self._id = hashlib.sha256(key).digest()[:_ID_BYTES]
        self._random = random

    def seal(self, secret: bytes, webhook: str) -> bytes:
        nonce = self._random(_NONCE_BYTES)
        return self._id + nonce + self._cipher.encrypt(nonce, secret, webhook.encode())

    def open(self, sealed: bytes, webhook: str) -> bytes:
        """Raises Unavailable."""
        from cryptography.exceptions import InvalidTag

        if sealed[:_ID_BYTES] != self._id:
            raise Unavailable(
                f"the secrets of webhook {webhook!r} were encrypted with another key; give the broker the "
                "one that it had (secrets_key_file), or rotate the secret"
            )
        nonce = sealed[_ID_BYTES : _ID_BYTES + _NONCE_BYTES]
        try:
            return self._cipher.decrypt(nonce, sealed[_ID_BYTES + _NONCE_BYTES :], webhook.encode())
        except InvalidTag:
            raise Unavailable(
                f"a stored secret of webhook {webhook!r} is damaged; rotate the secret"
            ) from None
