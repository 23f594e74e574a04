"""What the disk allows whoever promises that a confirmed message is on it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.queues.contests import Stage
from bench.queues.figures import Row
from bench.queues.pacing import percentile

_SIZES = (4096, 256 * 1024)
"""A few messages, and about a window of them."""
_ROOM = 64 * 1024 * 1024
DISK = "the disk"


def floor(stage: Stage) -> Iterator[Row]:
    for size in _SIZES:
        rounds = [_syncs(size, min(stage.plan.seconds / 5, 2.0)) for _ in range(stage.plan.rounds)]
        label = f"{size // 1024} KiB"
        section = "The floor: a write into a file that has its room, then fdatasync"
        yield Row(
            section=section,
            name=f"{label} each",
            unit="syncs/s",
            rounds={DISK: tuple(len(took) / sum(took) * 1e9 for took in rounds)},
        )
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            values = tuple(percentile(took, share) / 1e6 for took in rounds)
            yield Row(
                section=section,
                name=f"{label} each, {name}",
                unit="ms",
                rounds={DISK: values},
                is_less_better=True,
            )


def _syncs(size: int, seconds: float) -> list[int]:
    """Nanoseconds that each took, in ascending order."""
    scratch = Path(".bench")
    scratch.mkdir(exist_ok=True)
    path = scratch / "floor"
    data = os.urandom(size)
    took: list[int] = []
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(file, 0, _ROOM)
        os.fsync(file)
        end = time.monotonic() + seconds
        position = 0
        while time.monotonic() < end:
            begun = time.perf_counter_ns()
            os.pwrite(file, data, position)
            os.fdatasync(file)
            took.append(time.perf_counter_ns() - begun)
            position = (position + size) % (_ROOM - size)
    finally:
        os.close(file)
        path.unlink()
    return sorted(took)
