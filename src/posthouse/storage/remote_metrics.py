"""What a storage counts that is in a database and an object store. Other storages have none of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from posthouse.model.histogram import Histogram


class CallMetrics:
    """Calls of one kind, to a database or an object store."""

    __slots__ = ("failures", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()
        """Its count is the number of calls."""
        self.failures = 0


class ObjectCallMetrics(CallMetrics):
    __slots__ = ("bytes", "objects")

    def __init__(self) -> None:
        super().__init__()
        self.objects = 0
        """That were put, read, deleted or listed."""
        self.bytes = 0
        """That were put or read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMetrics:
    """Blocks of objects, in memory and on a local disk."""

    hits: int = 0
    misses: int = 0
    """Blocks that a reader had to wait for."""
    disk_hits: int = 0
    """Those of them, and blocks that were read ahead, that came from the disk."""
    memory_bytes: int = 0
    disk_bytes: int | None = None
    """None without a cache on a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepMetrics:
    consolidation_lag_seconds: float
    """How long the oldest run waits for consolidation beyond its time."""
    consolidated_bytes: int
    segments_written: int
    damaged_logs: int
    """Logs that cannot be consolidated further."""
    free_slots: int | None
    """None if it is not known yet."""
    doomed_objects: int | None
    """Not used any more, and not deleted yet. None if it is not known yet."""
    deleted_objects: int
    deleted_orphans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMetrics:
    """At one moment. Calls are counted further in place."""

    database: Mapping[str, CallMetrics]
    """By kind: commit, read, follow."""
    database_away_seconds: float | None
    """How long the database has not answered commits; None while it does."""
    objects: Mapping[str, ObjectCallMetrics]
    """By kind: put, read, delete, list."""
    objects_away_seconds: float | None
    """How long all calls of the object store have failed."""
    tail_bytes: int
    """Newest records in memory."""
    cache: CacheMetrics
    upkeep: UpkeepMetrics
