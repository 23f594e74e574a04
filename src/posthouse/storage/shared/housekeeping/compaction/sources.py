"""The segments of a log that a compaction pass may clean, and whether a pass is due."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.topic_config import TopicConfig
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.producers import AbortedTransaction
from posthouse.storage.shared.database import DatabaseConnection

_SEGMENTS = """
SELECT s.base, s.last, o.key, s.pos, s.size, s.max_time, s.created_ms, s.generation, s.clean_to, s.horizon
FROM segment s JOIN object o ON o.id = s.object JOIN log l ON l.id = s.log
WHERE s.log = %s AND s.last >= l.start ORDER BY s.base
"""
_ABORTED = "SELECT producer, first, last FROM aborted WHERE log = %s AND first < %s ORDER BY last"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSource:
    base: int
    last: int
    key: str
    pos: int
    size: int
    max_time: int
    created_ms: int
    generation: int
    clean_to: int
    """Compacted up to this offset: below it no two records have the same key."""
    horizon: int
    """The earliest delete horizon."""

    @property
    def next(self) -> int:
        return self.last + 1

    @property
    def batch_bytes(self) -> int:
        return self.size - HEADER_BYTES

    @property
    def is_clean(self) -> bool:
        return self.clean_to > self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconsolidated:
    """The runs of a log, which become segments before a pass."""

    size: int
    oldest_ms: int


async def segments_of(connection: DatabaseConnection, log: int) -> list[CompactionSource]:
    """All from the start of the log on."""
    found = await connection.execute(_SEGMENTS, [log])
    return [
        CompactionSource(
            base=base,
            last=last,
            key=key,
            pos=pos,
            size=size,
            max_time=max_time,
            created_ms=created_ms,
            generation=generation,
            clean_to=clean_to,
            horizon=horizon,
        )
        for base, last, key, pos, size, max_time, created_ms, generation, clean_to, horizon in (
            await found.fetchall()
        )
    ]


async def aborted_in(connection: DatabaseConnection, log: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions that began before `end`, in the order of their markers."""
    found = await connection.execute(_ABORTED, [log, end])
    return [AbortedTransaction(*row) for row in await found.fetchall()]


def sources_of(
    segments: Sequence[CompactionSource], config: TopicConfig, now_ms: int, *, end: int, log_end: int
) -> list[CompactionSource]:
    """The segments from the first on that end at or before `end`; never the one with the last record."""
    sources: list[CompactionSource] = []
    lag = config.min_compaction_lag_ms
    for segment in segments:
        newest = segment.max_time if segment.max_time >= 0 else segment.created_ms
        is_young = lag > 0 and newest > now_ms - lag and not segment.is_clean
        if segment.next > end or segment.next >= log_end or is_young:
            break
        sources.append(segment)
    return sources


def dirty_from(sources: Sequence[CompactionSource]) -> int:
    for source in sources:
        if not source.is_clean:
            return max(source.clean_to, source.base)
    return sources[-1].next


def is_due(
    sources: Sequence[CompactionSource],
    config: TopicConfig,
    now_ms: int,
    runs: Unconsolidated | None = None,
) -> bool:
    """Whether enough bytes are dirty, a dirty record is too old, or a delete horizon has passed."""
    if any(source.horizon <= now_ms for source in sources):
        return True
    dirty = [source for source in sources if not source.is_clean]
    size = sum(source.size for source in dirty)
    total = sum(source.size for source in sources)
    oldest = dirty[0].created_ms if dirty else now_ms
    if runs is not None:
        size += runs.size
        total += runs.size
        oldest = min(oldest, runs.oldest_ms)
    return size > 0 and (
        size >= config.min_cleanable_dirty_ratio * total or now_ms - oldest >= config.max_compaction_lag_ms
    )
