"""An object store in a directory: for a shared file system, and for tests."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from posthouse.storage.shared.objects.object_files import ObjectFiles
from posthouse.storage.shared.objects.probe import probe
from posthouse.storage.shared.objects.store import (
    Buffer,
    ObjectsAway,
    ObjectsRefused,
    StoredObject,
    seconds_for,
)

T = TypeVar("T")

_THREADS = 8
"""Enough for parallel uploads and reads; a file system that hangs blocks no more than these."""
_PAGE = 1000
_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class DirectoryObjectStore:
    def __init__(self, directory: Path, *, timeout: float) -> None:
        """A call that exceeds the timeout may still take effect."""
        self._directory = directory
        self._timeout = timeout
        self._files = ObjectFiles(directory)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="objects")

    @property
    def name(self) -> str:
        return f"file://{self._directory}"

    @property
    def sign(self) -> None:
        """There are no addresses."""

    async def put(self, key: str, data: Buffer) -> None:
        await self._run(f"put {key}", lambda: self._files.put(key, data), len(data))

    async def read(self, key: str, start: int, size: int) -> bytes:
        return await self._run(f"read {key}", lambda: self._files.read(key, start, size), size)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._run(f"delete {len(keys)} objects", lambda: self._files.delete(keys))

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        walk = self._files.walk(prefix)
        while page := await self._run(f"list {prefix}", lambda: list(islice(walk, _PAGE))):
            for each in page:
                yield each

    async def check(self) -> None:
        await probe(self, f"make sure that the broker's user may read and write {self._directory}")

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, doing: str, work: Callable[[], T], size: int = 0) -> T:
        seconds = seconds_for(size, self._timeout)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError as error:
            raise ObjectsAway(f"{doing}: {self.name} did not answer in {seconds:g} s") from error
        except OSError as error:
            kind = ObjectsRefused if error.errno in _REFUSALS else ObjectsAway
            raise kind(f"{doing}: {self.name}: {error.strerror or error}") from error
