"""What `status` and `top` say of a storage that brokers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posthouse.cli.output import counted
from posthouse.cli.sizes import rounded_size

_DATABASE = (("commits", "commit"), ("reads", "read"))
_OBJECTS = (("puts", "put"), ("reads", "read"))


def shared_facts(shared: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """`shared` is that part of /v1/storage."""
    yield "database", _service(shared["database"], _DATABASE)
    yield "objects", _service(shared["objects"], _OBJECTS)
    yield "in memory", f"{rounded_size(shared['tail_bytes'])} of newest records, {_cache(shared['cache'])}"
    yield "consolidation", _consolidation(shared["consolidation"])
    if room := _room(shared["free_slots"], shared["doomed_objects"]):
        yield "room", room


def _service(service: dict[str, Any], operations: tuple[tuple[str, str], ...]) -> str:
    parts = []
    if service["away_seconds"] is not None:
        parts.append(f"AWAY for {service['away_seconds']:.0f} s")
    for noun, operation in operations:
        calls = service["calls"].get(operation)
        if calls is not None and calls["p50_ms"] is not None:
            parts.append(f"{noun} p50 {calls['p50_ms']:.1f} ms, p99 {calls['p99_ms']:.1f} ms")
    failures = sum(each["failures"] for each in service["calls"].values())
    parts.append(counted(failures, "failure"))
    return "; ".join(parts)


def _cache(cache: dict[str, Any]) -> str:
    asked = cache["hits"] + cache["misses"]
    rate = f", {100 * cache['hits'] / asked:.0f}% hits" if asked else ""
    disk = "" if cache["disk_bytes"] is None else f", {rounded_size(cache['disk_bytes'])} on disk"
    return f"{rounded_size(cache['memory_bytes'])} of blocks{disk}{rate}"


def _consolidation(consolidation: dict[str, Any]) -> str:
    lag = consolidation["lag_seconds"]
    parts = [f"{lag:.0f} s late" if lag >= 1 else "in time"]
    if consolidation["damaged_logs"]:
        parts.append(f"{counted(consolidation['damaged_logs'], 'log')} DAMAGED")
    return ", ".join(parts)


def _room(free_slots: int | None, doomed_objects: int | None) -> str:
    """Empty if the broker has not looked yet."""
    parts = [] if free_slots is None else [f"{free_slots} of 16 slots free"]
    if doomed_objects is not None:
        parts.append(f"{counted(doomed_objects, 'object')} to delete")
    return ", ".join(parts)
