"""Compaction of a log in memory: every batch is its own segment, and the whole pass is one call."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.topic_config import TopicConfig
from posthouse.records.batch import BatchHeader, Readable, parse_header
from posthouse.records.spans import filler
from posthouse.storage.bounds import Bounds
from posthouse.storage.cleaning.batch_cleaner import NO_HORIZON, Aborted, BatchCleaner, Rules
from posthouse.storage.cleaning.batch_keys import put_keys
from posthouse.storage.cleaning.key_map import KeyMap
from posthouse.storage.producers import ProducerTable

_NO_LIMIT = 2**63


class StoredBatch:
    __slots__ = ("created_ms", "data", "header")

    def __init__(self, data: bytes, header: BatchHeader, created_ms: int) -> None:
        self.data = data
        self.header = header
        self.created_ms = created_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    """How far a log is compacted, and its next delete horizon."""

    clean_to: int = 0
    horizon: int = NO_HORIZON


def compact(
    batches: list[StoredBatch],
    bounds: Bounds,
    producers: ProducerTable,
    config: TopicConfig,
    progress: CompactionProgress,
    now_ms: int,
) -> CompactionProgress:
    """Compact `batches` in place if that is due."""
    candidates = _candidates(batches, bounds, config, progress, now_ms)
    if not _is_due(candidates, config, progress, now_ms):
        return progress
    end = candidates[-1].header.next_offset
    rules = Rules(
        partition="(in memory)",
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        log_start=bounds.start,
        dirty_from=progress.clean_to,
        aborted=Aborted(producers.aborted_between(0, end)),
        producers=producers.active(),
    )
    cleaner = BatchCleaner(rules, _keys(candidates, rules), end)
    left: list[StoredBatch] = []
    for stored in candidates:
        data = cleaner.clean(memoryview(stored.data), stored.header)
        if data is not None:
            _fill(left, candidates[0].header.base_offset, stored.header.base_offset, stored.created_ms)
            left.append(_stored(data, stored.created_ms))
    _fill(left, candidates[0].header.base_offset, end, candidates[-1].created_ms)
    batches[: len(candidates)] = left
    if cleaner.forgotten:
        producers.forget_aborted(cleaner.forgotten)
    return CompactionProgress(clean_to=end, horizon=cleaner.take_horizon())


def _candidates(
    batches: list[StoredBatch], bounds: Bounds, config: TopicConfig, progress: CompactionProgress, now_ms: int
) -> list[StoredBatch]:
    """All batches but the last, below the last stable offset and old enough."""
    found = []
    lag = config.min_compaction_lag_ms
    for stored in batches[:-1]:
        header = stored.header
        newest = header.max_timestamp if header.max_timestamp >= 0 else stored.created_ms
        is_young = lag > 0 and newest > now_ms - lag and header.base_offset >= progress.clean_to
        if header.next_offset > bounds.stable or is_young:
            break
        found.append(stored)
    return found


def _is_due(
    candidates: Sequence[StoredBatch], config: TopicConfig, progress: CompactionProgress, now_ms: int
) -> bool:
    if not candidates:
        return False
    dirty = [stored for stored in candidates if stored.header.base_offset >= progress.clean_to]
    size = sum(stored.header.length for stored in dirty)
    total = sum(stored.header.length for stored in candidates)
    return progress.horizon <= now_ms or (
        size > 0
        and (
            size >= config.min_cleanable_dirty_ratio * total
            or now_ms - dirty[0].created_ms >= config.max_compaction_lag_ms
        )
    )


def _keys(candidates: Sequence[StoredBatch], rules: Rules) -> KeyMap:
    keys = KeyMap(_NO_LIMIT)
    for stored in candidates:
        header = stored.header
        if header.base_offset < rules.dirty_from or header.is_control or rules.aborted.covers(header):
            continue
        put_keys(keys, stored.data, header)
    return keys


def _fill(left: list[StoredBatch], start: int, end: int, created_ms: int) -> None:
    first = left[-1].header.next_offset if left else start
    left += [_stored(batch, created_ms) for batch in filler(first, end)]


def _stored(data: Readable, created_ms: int) -> StoredBatch:
    return StoredBatch(bytes(data), parse_header(data), created_ms)
