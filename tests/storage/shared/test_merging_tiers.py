"""Which segments are merged: few are left of a slow topic, and bytes are rewritten seldom."""

import random

import pytest

from posthouse.model.topic_config import TopicConfig
from posthouse.storage.shared.housekeeping.merging.tiers import (
    FAN_IN,
    MergeLimits,
    SmallSegment,
    merges,
)

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
MIB = 1024 * 1024
UNLIMITED = MergeLimits(bytes=32 * MIB, ms=None)


def segment(number: int, size: int, at_ms: int = 0) -> SmallSegment:
    return SmallSegment(
        base=number,
        last=number,
        key="",
        pos=0,
        size=size,
        max_time=at_ms,
        created_ms=at_ms,
        generation=0,
        horizon=0,
    )


class SlowLog:
    """Gets a segment at a time, merges after every sixth, and counts what that rewrites."""

    def __init__(self, limits: MergeLimits) -> None:
        self._limits = limits
        self.segments: list[SmallSegment] = []
        self._added = 0
        self.written = self.rewritten = self.most = 0

    def add(self, size: int, at_ms: int = 0) -> None:
        number = self.segments[-1].last + 1 if self.segments else 0
        self.segments.append(segment(number, size, at_ms))
        self.written += size
        self._added += 1
        if self._added % 6 == 0:
            self._merge()
        self.most = max(self.most, len(self.segments))

    def _merge(self) -> None:
        for group in merges(self.segments, self._limits):
            at = self.segments.index(group[0])
            assert self.segments[at : at + len(group)] == list(group), "they are neighbours"
            assert len(group) > 1
            made = segment(group[0].base, sum(each.size for each in group), group[-1].max_time)
            assert made.size <= self._limits.bytes
            self.rewritten += made.size
            self.segments[at : at + len(group)] = [
                SmallSegment(
                    base=made.base,
                    last=group[-1].last,
                    key="",
                    pos=0,
                    size=made.size,
                    max_time=made.max_time,
                    created_ms=0,
                    generation=1,
                    horizon=0,
                )
            ]

    def expire(self, before_ms: int) -> None:
        while self.segments and self.segments[0].max_time < before_ms:
            del self.segments[0]


@pytest.mark.parametrize("size", [500, 5_000])
def test_a_year_of_a_slow_topic(size: int) -> None:
    """Without merging it would have 52,560 segments."""
    slow = SlowLog(UNLIMITED)
    for number in range(365 * 24 * 6):
        slow.add(size, number * 10 * MINUTE_MS)
    full = slow.written // (32 * MIB // FAN_IN)
    assert slow.most <= 6 * FAN_IN + full
    assert slow.rewritten <= 6 * slow.written


def test_months_with_days_and_nights() -> None:
    chosen = random.Random(7)
    slow = SlowLog(UNLIMITED)
    for number in range(60 * 24 * 6):
        is_night = number // (6 * 12) % 2
        slow.add(chosen.randint(200, 2000) if is_night else chosen.randint(1000, 200_000))
    full = slow.written // (32 * MIB // 2)
    assert slow.most <= (full + 1) * 12
    assert slow.rewritten <= 7 * slow.written


def test_a_year_with_retention() -> None:
    """Retention stays as exact as a tenth of what it keeps."""
    config = TopicConfig(retention_ms=7 * DAY_MS)
    limits = MergeLimits.of(config, 32 * MIB)
    slow = SlowLog(limits)
    for number in range(365 * 24 * 6):
        now = number * 10 * MINUTE_MS
        slow.add(500, now)
        slow.expire(now - 7 * DAY_MS)
    assert slow.most <= 60
    assert slow.segments[1].max_time - slow.segments[0].max_time <= 2 * 7 * DAY_MS // 10


def test_what_is_large_enough_is_left_alone() -> None:
    large = [segment(number, 20 * MIB) for number in range(100)]
    assert merges(large, UNLIMITED) == []
    assert merges([segment(number, 100) for number in range(FAN_IN - 1)], UNLIMITED) == []
    assert merges([], UNLIMITED) == []


def test_segments_that_fill_one_before_there_are_many() -> None:
    found = merges([segment(number, 10 * MIB) for number in range(9)], UNLIMITED)
    assert [len(group) for group in found] == [3]


def test_all_sizes_end_in_one_segment_with_the_least_fan_in() -> None:
    slow = SlowLog(MergeLimits(bytes=32 * MIB, ms=None, fan_in=2))
    for number in range(600):
        slow.add(100 + number)
    assert len(slow.segments) <= 12


def test_limits_of_topics() -> None:
    assert MergeLimits.of(TopicConfig(retention_ms=-1), 1000) == MergeLimits(bytes=1000, ms=None)
    limits = MergeLimits.of(TopicConfig(retention_ms=1000, retention_bytes=500, segment_bytes=14), 1000)
    assert limits == MergeLimits(bytes=14, ms=100)
    assert MergeLimits.of(TopicConfig(retention_bytes=500), 1000).bytes == 50
    assert MergeLimits.of(TopicConfig(retention_local_ms=50), 1000).ms == 5
