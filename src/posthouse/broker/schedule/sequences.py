"""Sequences of entries: they rise for ever, also over restarts and when the clock is set back.

Together with its time, the sequence is how an entry is recalled: no two may have the same. So a *ceiling* is
durable before sequences below it are used, and the next start begins there. Sequences follow the clock, so
one ceiling is enough for minutes.

Storage has one entry per schedule beside its buckets in `Space.SCHEDULE`, numbers big-endian:

    key    0xFFFFFFFE, where a bucket has its log, behind the same prefix
    value  version u8 = 1 | ceiling u64

Sequences of messages are even: the one before belongs to the recall of the message.
"""

import asyncio
from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Final

from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_STEP: Final = 2
_BITS: Final = 16
"""Of a sequence, for messages of the same millisecond."""
_RESERVED: Final = 600_000 << _BITS
_MARGIN: Final = 60_000 << _BITS
_KEY: Final = b"\xff\xff\xff\xfe"
_VERSION: Final = 1
_VALUE: Final = Struct(">BQ")


class Sequences:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, clock: Clock, prefix: bytes) -> None:
        self._storage = storage
        self._clock = clock
        self._key = prefix + _KEY
        self._last = 0
        self._ceiling = 0
        self._reserving = asyncio.Lock()

    def load(self, state: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Returns the rest."""
        if (value := state.get(self._key)) is not None:
            self._last = self._ceiling = _decoded(value)
        return {key: value for key, value in state.items() if key != self._key}

    @property
    def is_ready(self) -> bool:
        """Whether entries that have a sequence, or are about to get one, may be stored."""
        return max(self._last, self._clock.now_ms() << _BITS) + _MARGIN < self._ceiling

    async def reserve(self) -> None:
        """Durable on return. Raises Unavailable."""
        async with self._reserving:
            if self.is_ready:
                return
            ceiling = max(self._last, self._clock.now_ms() << _BITS) + _RESERVED
            await self._storage.commit([Put(Space.SCHEDULE, self._key, _VALUE.pack(_VERSION, ceiling))])
            self._ceiling = ceiling

    def new(self) -> bytes:
        first = self._clock.now_ms() << _BITS
        if self._ceiling:  # a clock that is set forward after `is_ready` must not lead beyond it
            first = min(first, self._ceiling - _MARGIN)
        self._last = max(self._last + _STEP, first)
        return self._last.to_bytes(8, "big")


def _decoded(value: bytes) -> int:
    try:
        version, ceiling = _VALUE.unpack(value)
    except StructError as error:
        raise DataDamaged(f"the sequences of the schedule cannot be read: {error}") from error
    if version != _VERSION:
        raise DataDamaged(f"the sequences of the schedule have the unknown version {version}")
    found: int = ceiling
    return found
