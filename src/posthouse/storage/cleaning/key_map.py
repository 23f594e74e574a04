"""The latest offset of every key in a stretch of the log, in bounded memory."""

from hashlib import blake2b

_LONG_KEY = 64
"""A longer key is replaced by a digest of exactly this length, so that it cannot equal a shorter key."""
_ENTRY_BYTES = 200
"""Memory of one entry besides its key: two objects and its share of the hash table, which grows in steps."""


class KeyMap:
    __slots__ = ("_bytes", "_max_bytes", "_offsets")

    def __init__(self, max_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._bytes = 0
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._max_bytes

    def put(self, key: bytes, offset: int) -> None:
        """Set the latest offset of the key. Calls must come in rising order of offsets."""
        if len(key) >= _LONG_KEY:
            key = blake2b(key, digest_size=_LONG_KEY).digest()
        if key not in self._offsets:
            self._bytes += len(key) + _ENTRY_BYTES
        self._offsets[key] = offset

    def latest(self, key: bytes) -> int:
        """The latest offset of the key, -1 if the key does not occur."""
        if len(key) >= _LONG_KEY:
            key = blake2b(key, digest_size=_LONG_KEY).digest()
        return self._offsets.get(key, -1)
