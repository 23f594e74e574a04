"""A secret of the broker that stays with its data. Storage has one entry in `Space.SECRETS`:

key    "broker"
value  32 random bytes

It derives values that must look random to clients and stay the same after a restart. Each purpose has its own
key.

On a full disk the broker starts with a secret that is not stored yet, so that topics can be deleted. Values
that must stay valid after a restart wait for `store`.
"""

import hmac
import logging
from collections.abc import Mapping

from posthouse.model.errors import StorageFull
from posthouse.model.scram import RandomBytes
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

_KEY = b"broker"
_BYTES = 32


class Secret:
    def __init__(self, storage: Storage, value: bytes, *, is_stored: bool) -> None:
        self._storage = storage
        self._value = value
        self._is_stored = is_stored

    @classmethod
    def found(cls, storage: Storage, state: Mapping[bytes, bytes]) -> "Secret | None":
        """The secret in `state`, the content of `Space.SECRETS`."""
        value = state.get(_KEY)
        return None if value is None else cls(storage, value, is_stored=True)

    @classmethod
    async def create(cls, storage: Storage, random: RandomBytes) -> "Secret":
        """A new secret. Durable on return, unless the disk is full."""
        secret = cls(storage, random(_BYTES), is_stored=False)
        try:
            await secret.store()
        except StorageFull as error:
            log.warning(
                "the broker's secret is not stored yet (%s): producers get no producer ids until there is "
                "space. Delete topics or enlarge the disk",
                error,
            )
        return secret

    async def store(self) -> None:
        """Store the secret. Durable on return. Raises StorageFull."""
        if not self._is_stored:
            await self._storage.commit([Put(Space.SECRETS, _KEY, self._value)])
            self._is_stored = True

    def key(self, purpose: str) -> bytes:
        return hmac.digest(self._value, purpose.encode(), "sha256")
