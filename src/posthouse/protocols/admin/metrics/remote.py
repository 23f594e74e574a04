"""A storage in a database and an object store. A broker on a local disk has none of it."""

from typing import Final

from posthouse.protocols.admin.metrics.family import counter, gauge, histogram
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.storage.remote_metrics import RemoteMetrics

DATABASE: Final = histogram(
    "posthouse_database_call_duration_seconds",
    "Time of calls of the database: groups of commits, reads of what is not in memory.",
    "operation",
)
DATABASE_FAILURES: Final = counter(
    "posthouse_database_call_failures_total",
    "Calls of the database that failed or were not answered.",
    "operation",
)
DATABASE_AWAY: Final = gauge(
    "posthouse_database_away_seconds", "How long the database has not answered commits; 0 while it does."
)
OBJECTS: Final = histogram(
    "posthouse_object_call_duration_seconds", "Time of calls of the object store.", "operation"
)
OBJECT_FAILURES: Final = counter(
    "posthouse_object_call_failures_total", "Calls of the object store that failed.", "operation"
)
OBJECT_BYTES: Final = counter(
    "posthouse_object_bytes_total", "Bytes put into and read from the object store.", "operation"
)
OBJECTS_AWAY: Final = gauge(
    "posthouse_objects_away_seconds",
    "How long all calls of the object store have failed; 0 after one that succeeded.",
)
TAIL: Final = gauge("posthouse_tail_bytes", "Newest records that are kept in memory.")
HITS: Final = counter(
    "posthouse_block_cache_hits_total", "Blocks of objects that were in memory when needed."
)
MISSES: Final = counter("posthouse_block_cache_misses_total", "Blocks of objects that a reader waited for.")
DISK_HITS: Final = counter("posthouse_block_cache_disk_hits_total", "Blocks that came from the disk cache.")
CACHE: Final = gauge("posthouse_block_cache_bytes", "Blocks in memory.")
DISK_CACHE: Final = gauge("posthouse_disk_cache_bytes", "Blocks in the disk cache.")
LAG: Final = gauge(
    "posthouse_consolidation_lag_seconds",
    "How long the oldest run waits for consolidation beyond its time, of the logs that this broker keeps.",
)
SEGMENTS: Final = counter("posthouse_consolidated_segments_total", "Segments that consolidation wrote.")
CONSOLIDATED: Final = counter("posthouse_consolidated_bytes_total", "Bytes of those segments.")
DAMAGED: Final = gauge(
    "posthouse_consolidation_damaged_logs",
    "Logs that this broker keeps and whose consolidation waits because of damage.",
)
SLOTS: Final = gauge("posthouse_free_slots", "Slots of the database that are empty, of 16.")
DOOMED: Final = gauge("posthouse_doomed_objects", "Objects that are not used any more and not deleted yet.")
DELETED: Final = counter("posthouse_deleted_objects_total", "Objects that garbage collection deleted.")
ORPHANS: Final = counter(
    "posthouse_deleted_orphans_total", "Objects deleted that were uploaded and never committed."
)
FAMILIES: Final = (
    *(DATABASE, DATABASE_FAILURES, DATABASE_AWAY, OBJECTS, OBJECT_FAILURES, OBJECT_BYTES, OBJECTS_AWAY),
    *(TAIL, HITS, MISSES, DISK_HITS, CACHE, DISK_CACHE, LAG, SEGMENTS, CONSOLIDATED, DAMAGED, SLOTS),
    *(DOOMED, DELETED, ORPHANS),
)


def collect(remote: RemoteMetrics, samples: Samples) -> None:
    for operation, call in remote.database.items():
        samples.add(DATABASE, call.seconds, operation)
        samples.add(DATABASE_FAILURES, call.failures, operation)
    samples.add(DATABASE_AWAY, remote.database_away_seconds or 0)
    for operation, each in remote.objects.items():
        samples.add(OBJECTS, each.seconds, operation)
        samples.add(OBJECT_FAILURES, each.failures, operation)
        samples.add(OBJECT_BYTES, each.bytes, operation)
    samples.add(OBJECTS_AWAY, remote.objects_away_seconds or 0)
    samples.add(TAIL, remote.tail_bytes)
    cache = remote.cache
    samples.add(HITS, cache.hits)
    samples.add(MISSES, cache.misses)
    samples.add(DISK_HITS, cache.disk_hits)
    samples.add(CACHE, cache.memory_bytes)
    if cache.disk_bytes is not None:
        samples.add(DISK_CACHE, cache.disk_bytes)
    upkeep = remote.upkeep
    samples.add(LAG, upkeep.consolidation_lag_seconds)
    samples.add(SEGMENTS, upkeep.segments_written)
    samples.add(CONSOLIDATED, upkeep.consolidated_bytes)
    samples.add(DAMAGED, upkeep.damaged_logs)
    if upkeep.free_slots is not None:
        samples.add(SLOTS, upkeep.free_slots)
    if upkeep.doomed_objects is not None:
        samples.add(DOOMED, upkeep.doomed_objects)
    samples.add(DELETED, upkeep.deleted_objects)
    samples.add(ORPHANS, upkeep.deleted_orphans)
