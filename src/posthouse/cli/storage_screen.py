"""The state of a shared storage in lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from posthouse.cli.durations import shown_duration
from posthouse.cli.output import counted
from posthouse.cli.scope_ranges import shortened
from posthouse.cli.sizes import rounded_size

if TYPE_CHECKING:
    from posthouse.storage.shared.administration.administration import StorageStatus


def status_lines(found: StorageStatus) -> Iterator[str]:
    yield f"cluster       {found.cluster_id or 'none yet: no broker has started'}"
    yield f"tables        version {found.version}"
    yield f"coordinator   {_coordinator(found)}"
    if found.free_scopes:
        yield f"free scopes   {shortened(found.free_scopes)}"
    logs, objects = found.logs, found.objects
    yield (
        f"logs          {counted(logs.logs, 'log')} of {counted(logs.topics, 'topic')}, "
        f"{rounded_size(logs.bytes)}"
    )
    yield f"tail          {counted(logs.tail_runs, 'run')}, {rounded_size(logs.tail_bytes)}"
    lag = logs.consolidation_lag_seconds
    yield f"consolidation {f'{shown_duration(lag * 1000)} behind' if lag else 'up to date'}"
    yield f"segments      {counted(logs.segments, 'segment')}, {rounded_size(logs.segment_bytes)}"
    yield (
        f"objects       {objects.live:,} live, {rounded_size(objects.live_bytes)}; "
        f"{objects.doomed:,} doomed, {rounded_size(objects.doomed_bytes)}, "
        f"{objects.held:,} held"
    )
    yield f"database      {rounded_size(found.database_bytes)}"
    yield f"replication   {_replication(found)}"
    if found.loss is not None:
        yield f"loss          {found.loss}; brokers do not serve before 'posthouse storage accept-loss'"
    if found.confirmed_losses:
        yield f"losses        accepted {counted(found.confirmed_losses, 'time')}"


def _coordinator(found: StorageStatus) -> str:
    lease = found.lease
    if found.unfinished_import is not None:
        return (
            f"held by an import, epoch {lease.epoch}; if it was interrupted, repeat it: brokers cannot serve "
            "before it is finished"
        )
    if lease.holder is None:
        return f"free, epoch {lease.epoch}"
    left = f"{lease.seconds_left:.1f} s left" if lease.seconds_left else "over"
    return f"held by {lease.holder}, epoch {lease.epoch}, {left}"


def _replication(found: StorageStatus) -> str:
    standbys = ", ".join(
        f"{each.name or 'a standby'} ({each.sync_state or 'not visible to this role'}, {each.state or '?'})"
        for each in found.standbys
    )
    names = found.synchronous_standby_names
    if not names:
        connected = standbys or "no standby connected"
        return f"not synchronous: a failover of PostgreSQL can lose records; {connected}"
    return f"synchronous_standby_names = {names}; {standbys or 'NO STANDBY CONNECTED'}"
