"""Seals secrets and opens them, with the key of the settings, or one that is made when it is first needed."""

import asyncio
from pathlib import Path

from posthouse.broker.webhooks.key_file import NAME, make_key, read_key
from posthouse.broker.webhooks.sealing import KEY_BYTES, Sealing
from posthouse.model.errors import InvalidConfig, Unavailable
from posthouse.model.scram import RandomBytes
from posthouse.settings import Settings


class SecretKeeper:
    """Owned by the event loop; files are read and written by a thread."""

    def __init__(self, settings: Settings, random: RandomBytes) -> None:
        self._given = settings.secrets_key_file
        self._own = None if settings.memory else settings.data / NAME
        self._random = random
        self._sealing: Sealing | None = None
        self._loading = asyncio.Lock()

    async def seal(self, secret: bytes, webhook: str) -> bytes:
        """Raises InvalidConfig and Unavailable."""
        return (await self._loaded(may_make=True)).seal(secret, webhook)

    async def open(self, sealed: bytes, webhook: str) -> bytes:
        """Raises InvalidConfig and Unavailable."""
        return (await self._loaded(may_make=False)).open(sealed, webhook)

    async def _loaded(self, *, may_make: bool) -> Sealing:
        async with self._loading:
            if self._sealing is None:
                self._sealing = Sealing(await self._key(may_make), self._random)
            return self._sealing

    async def _key(self, may_make: bool) -> bytes:
        path = self._given or self._own
        if path is None:
            return self._random(KEY_BYTES)  # of a broker in memory: nothing is stored
        try:
            return await asyncio.to_thread(read_key, path)
        except FileNotFoundError:
            if self._given is not None:
                raise InvalidConfig(f"secrets_key_file: there is no {path}") from None
            if not may_make:
                raise Unavailable(
                    f"{path} is missing, with the key that encrypts the secrets of webhooks; restore it from "
                    "a backup, or rotate the secrets of all webhooks"
                ) from None
            return await self._made(path)
        except OSError as error:
            raise Unavailable(f"the key in {path} cannot be read: {error}") from None

    async def _made(self, path: Path) -> bytes:
        try:
            return await asyncio.to_thread(make_key, path, self._random)
        except OSError as error:
            raise Unavailable(f"a key for secrets cannot be written to {path}: {error}") from None
