"""How the storage is doing: whether it takes writes, and how the services answer that it is in."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody, NoParameters
from posthouse.storage.remote_metrics import CallMetrics, RemoteMetrics


class CallsView(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kind since the broker took the lease (database) or started (object store)."""

    count: int
    failures: int
    p50_ms: Annotated[float | None, Meta(description="Half of the calls took no longer; an estimate.")]
    p99_ms: float | None


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    away_seconds: Annotated[
        float | None, Meta(description="How long it has not answered; null while it does.")
    ]
    calls: Annotated[Mapping[str, CallsView], Meta(description="By operation.")]


class CacheView(msgspec.Struct, frozen=True, kw_only=True):
    hits: int
    misses: int
    disk_hits: int
    memory_bytes: int
    disk_bytes: Annotated[int | None, Meta(description="null without a cache on a disk.")]


class ConsolidationView(msgspec.Struct, frozen=True, kw_only=True):
    """By this broker. Others consolidate other logs: `posthouse storage status` is about all of them."""

    lag_seconds: Annotated[
        float, Meta(description="How long the oldest run of its logs waits beyond its time.")
    ]
    segments: Annotated[int, Meta(description="Written since the broker took the lease.")]
    bytes: int
    damaged_logs: Annotated[int, Meta(description="Logs that cannot be consolidated further.")]


class SharedView(msgspec.Struct, frozen=True, kw_only=True):
    database: ServiceView
    objects: ServiceView
    tail_bytes: Annotated[int, Meta(description="Newest records in memory.")]
    cache: CacheView
    consolidation: ConsolidationView
    free_slots: Annotated[int | None, Meta(description="Of 16; null if it is not known yet.")]
    doomed_objects: Annotated[
        int | None, Meta(description="Not used any more, and not deleted yet; null if it is not known yet.")
    ]


class StorageView(msgspec.Struct, frozen=True, kw_only=True):
    writable: bool
    reasons: Annotated[list[str], Meta(description="What does not work.")]
    unwritten_bytes: int
    shared: Annotated[SharedView | None, Meta(description="null if the broker does not share its storage.")]


async def _describe(context: CallContext, parameters: NoParameters, body: NoBody) -> StorageView:
    context.require_cluster(Operation.DESCRIBE)
    condition = await context.broker.storage_condition()
    remote = context.broker.storage_metrics.remote
    return StorageView(
        writable=condition.refusal is None,
        reasons=[*([] if condition.refusal is None else [condition.refusal]), *condition.impairments],
        unwritten_bytes=context.broker.unwritten_bytes,
        shared=None if remote is None else _shared(remote()),
    )


def _shared(remote: RemoteMetrics) -> SharedView:
    cache, upkeep = remote.cache, remote.upkeep
    return SharedView(
        database=_service(remote.database_away_seconds, remote.database),
        objects=_service(remote.objects_away_seconds, remote.objects),
        tail_bytes=remote.tail_bytes,
        cache=CacheView(
            hits=cache.hits,
            misses=cache.misses,
            disk_hits=cache.disk_hits,
            memory_bytes=cache.memory_bytes,
            disk_bytes=cache.disk_bytes,
        ),
        consolidation=ConsolidationView(
            lag_seconds=round(upkeep.consolidation_lag_seconds, 1),
            segments=upkeep.segments_written,
            bytes=upkeep.consolidated_bytes,
            damaged_logs=upkeep.damaged_logs,
        ),
        free_slots=upkeep.free_slots,
        doomed_objects=upkeep.doomed_objects,
    )


def _service(away_seconds: float | None, calls: Mapping[str, CallMetrics]) -> ServiceView:
    return ServiceView(
        away_seconds=None if away_seconds is None else round(away_seconds, 1),
        calls={
            operation: CallsView(
                count=each.seconds.count,
                failures=each.failures,
                p50_ms=_milliseconds(each.seconds.quantile(0.5)),
                p99_ms=_milliseconds(each.seconds.quantile(0.99)),
            )
            for operation, each in calls.items()
        },
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 2)


STORAGE: Final = Endpoint(
    method="GET",
    path="/v1/storage",
    summary="How the storage is doing",
    tag="broker",
    handler=_describe,
    result=StorageView,
)
