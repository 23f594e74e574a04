"""The bytes of a group of commits: inline in the database, or in objects that are uploaded before."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from posthouse.model.clock import Clock
from posthouse.storage.operations import Append
from posthouse.storage.shared.commits.upload_buffers import UploadBuffers
from posthouse.storage.shared.objects.store import ObjectsAway

OBJECT_BYTES = 8 * 1024 * 1024
GROUP_BYTES = 4 * OBJECT_BYTES
_INLINE = 0
_REST_SECONDS = 5.0
_MOST_REST_SECONDS = 60.0
_OPTIONAL_SECONDS = 1.0
"""A group that may also go into the database does not wait longer for the object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPayload:
    places: Mapping[int, tuple[int, int]]
    """Object number (0 is inline) and position of each batch, by the `id` of its Append."""
    inline: bytes | None = None
    keys: Sequence[str] = field(default_factory=list)
    sizes: Sequence[int] = field(default_factory=list)


class PutObject(Protocol):
    async def put(self, key: str, data: bytes | bytearray | memoryview) -> None: ...


def inline_payload(batches: Sequence[Append]) -> CommitPayload:
    places: dict[int, tuple[int, int]] = {}
    position = 0
    for each in batches:
        places[id(each)] = (_INLINE, position)
        position += each.header.length
    data = b"".join(each.batch for each in batches) if batches else None
    return CommitPayload(places=places, inline=data)


class Uploads:
    """Cuts groups into objects and uploads them, all of a group at the same time."""

    def __init__(self, store: PutObject, new_key: Callable[[], str], clock: Clock) -> None:
        self._store = store
        self._new_key = new_key
        self._clock = clock
        self._buffers = UploadBuffers(OBJECT_BYTES)
        self._failures = 0
        """Since the last success."""
        self._resting_until = 0.0
        self.group_bytes = GROUP_BYTES
        self.pending: set[str] = set()
        """Keys that are uploaded and not committed yet: garbage collection must not take them for orphans."""

    @property
    def is_well(self) -> bool:
        """Whether the store answered lately; groups that can do without it do not try again at once."""
        return not self._failures or self._clock.monotonic() >= self._resting_until

    async def try_upload(self, batches: Sequence[Append]) -> CommitPayload:
        """The same as `upload`, for groups that can do without: raises Unavailable early."""
        try:
            async with asyncio.timeout(_OPTIONAL_SECONDS):
                return await self.upload(batches)
        except TimeoutError:
            self._failed()
            raise ObjectsAway("the object store is slow") from None

    async def upload(self, batches: Sequence[Append]) -> CommitPayload:
        """Raises Unavailable. Objects of a failed upload become orphans."""
        if not batches:
            return CommitPayload(places={})
        places: dict[int, tuple[int, int]] = {}
        parts: list[list[Append]] = []
        sizes: list[int] = []
        for each in batches:
            if not parts or sizes[-1] + each.header.length > OBJECT_BYTES:
                parts.append([])
                sizes.append(0)
            places[id(each)] = (len(parts), sizes[-1])
            parts[-1].append(each)
            sizes[-1] += each.header.length
        keys = [self._new_key() for _ in parts]
        self.pending.update(keys)
        puts = [self._put(key, part, size) for key, part, size in zip(keys, parts, sizes, strict=True)]
        try:
            results = await asyncio.gather(*puts, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    self._failed()
                    raise result
        except BaseException:
            self.pending.difference_update(keys)
            raise
        self._failures = 0
        return CommitPayload(places=places, keys=keys, sizes=sizes)

    async def _put(self, key: str, batches: Sequence[Append], size: int) -> None:
        data = self._buffers.filled([each.batch for each in batches], size)
        await self._store.put(key, data)
        self._buffers.recycle(data)

    def _failed(self) -> None:
        rest = min(_REST_SECONDS * 2**self._failures, _MOST_REST_SECONDS)
        self._resting_until = self._clock.monotonic() + rest
        self._failures = min(self._failures + 1, 10)

    def settled(self, payload: CommitPayload) -> None:
        """The commit is decided: its objects are known to the database, or garbage."""
        self.pending.difference_update(payload.keys)

    def abandoned(self, upload: asyncio.Future[CommitPayload]) -> None:
        """There will be no commit: what was uploaded is garbage."""
        if not upload.done():
            upload.cancel()
        elif not upload.cancelled() and upload.exception() is None:
            self.settled(upload.result())
