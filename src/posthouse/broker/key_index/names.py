"""What a search asks for, and the hash by which the index knows a name."""

from typing import NamedTuple

from crc32c import crc32c

from posthouse.records.record_names import Name


def name_hash(name: Name) -> int:
    """32 bits, the same for ever: they are in files. Names that collide cost a read, as many records of one
    name do, so it need not resist those who choose names."""
    return crc32c(name.value, name.kind)


class NameQuery(NamedTuple):
    """Records with this name and a timestamp from `since_ms` to `until_ms`, both included."""

    name: Name
    since_ms: int = -(1 << 63)
    until_ms: int = (1 << 63) - 1

    def has_time(self, timestamp: int) -> bool:
        return self.since_ms <= timestamp <= self.until_ms
