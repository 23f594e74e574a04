"""Which neighbouring segments of a log are merged: size-tiered, so that a byte is rewritten only a few times.

The tier of a segment is the power of the fan-in (8) that its size has. From the oldest segment on, those up
to the last one of the highest tier belong together, then those up to the last one of the next lower tier, and
so on. As soon as 8 segments belong together, they become one. So a log keeps at most 7 segments of each tier,
and a byte is rewritten once for each tier.

Segments that are too large to be merged separate the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.topic_config import TopicConfig

FAN_IN = 8
_SHARE_OF_RETENTION = 10
"""Retention removes whole segments, so none may be more than this part of what retention keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallSegment:
    base: int
    last: int
    key: str
    pos: int
    size: int
    max_time: int
    created_ms: int
    generation: int
    horizon: int

    @property
    def newest_ms(self) -> int:
        return self.max_time if self.max_time >= 0 else self.created_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    bytes: int
    ms: int | None
    """Between the newest records of the first and of the last segment; None for no limit."""
    fan_in: int = FAN_IN
    """A power of two."""

    @classmethod
    def of(cls, config: TopicConfig, segment_bytes: int, fan_in: int = FAN_IN) -> "MergeLimits":
        sizes = [each for each in (config.retention_bytes, config.retention_local_bytes) if each >= 0]
        times = [each for each in (config.retention_ms, config.retention_local_ms) if each >= 0]
        return cls(
            bytes=min(config.segment_bytes, segment_bytes, *(size // _SHARE_OF_RETENTION for size in sizes)),
            ms=min(times) // _SHARE_OF_RETENTION if times else None,
            fan_in=fan_in,
        )


def merges(segments: Sequence[SmallSegment], limits: MergeLimits) -> list[Sequence[SmallSegment]]:
    """Groups of consecutive segments of a log, each to become one; `segments` are consecutive, too."""
    found: list[Sequence[SmallSegment]] = []
    for part in _separated(segments, limits):
        while part:
            tiers = [_tier(each.size, limits.fan_in) for each in part]
            highest = max(tiers)
            count = len(tiers) - tiers[::-1].index(highest)
            found += _groups(part[:count], limits)
            part = part[count:]
    return found


def _tier(size: int, fan_in: int) -> int:
    """The power of the fan-in that a size has."""
    return (size.bit_length() - 1) // (fan_in.bit_length() - 1)


def _separated(segments: Sequence[SmallSegment], limits: MergeLimits) -> list[Sequence[SmallSegment]]:
    """The segments between those that fit with none of their neighbours."""
    parts: list[list[SmallSegment]] = [[]]
    for segment in segments:
        if parts[-1] and not _fits([parts[-1][-1], segment], limits):
            parts.append([])
        parts[-1].append(segment)
    return list(parts)


def _groups(segments: Sequence[SmallSegment], limits: MergeLimits) -> list[Sequence[SmallSegment]]:
    """Segments that belong together, cut into groups that fit; fewer than the fan-in are left as they are."""
    groups: list[Sequence[SmallSegment]] = []
    while len(segments) >= limits.fan_in:
        count = 1
        while count < limits.fan_in and _fits(segments[: count + 1], limits):
            count += 1
        if count > 1:
            groups.append(segments[:count])
        segments = segments[count:]
    return groups


def _fits(segments: Sequence[SmallSegment], limits: MergeLimits) -> bool:
    times = [each.newest_ms for each in segments]
    return sum(each.size for each in segments) <= limits.bytes and (
        limits.ms is None or max(times) - min(times) <= limits.ms
    )
