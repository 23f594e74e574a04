"""Segments in windows of some megabytes, the next ones fetched while the caller decodes one."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from posthouse.client.manifests import SegmentObject
from posthouse.records.batch import Readable

WINDOW_BYTES = 4 * 1024 * 1024
_AHEAD_BYTES = 12 * 1024 * 1024
_THREADS = 4


class ObjectSource(Protocol):
    """For several threads."""

    def origin(self, address: str) -> str:
        """The store that the object is in, for people."""

    def read(self, address: str, start: int, size: int) -> Readable:
        """Exactly `size` bytes from `start` on. Raises ObjectError."""

    def close(self) -> None:
        """Release connections. Reads that are under way may fail."""


@dataclass(frozen=True, slots=True)
class Window:
    segment: SegmentObject
    start: int
    size: int

    @property
    def is_last(self) -> bool:
        return self.start + self.size == self.segment.start + self.segment.size


def windows(segments: Sequence[SegmentObject], window_bytes: int = WINDOW_BYTES) -> Iterator[Window]:
    for segment in segments:
        end = segment.start + segment.size
        for start in range(segment.start, end, window_bytes):
            yield Window(segment, start, min(window_bytes, end - start))


def fetched(
    source: ObjectSource, wanted: Iterator[Window], ahead_bytes: int = _AHEAD_BYTES
) -> Iterator[tuple[Window, Readable]]:
    """The bytes of the windows, in order. Small ones are fetched at the same time. Raises ObjectError."""
    under_way: deque[tuple[Window, Future[Readable]]] = deque()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="segments")
    ahead = 0
    try:
        while True:
            while ahead < ahead_bytes and (window := next(wanted, None)) is not None:
                reading = threads.submit(source.read, window.segment.address, window.start, window.size)
                under_way.append((window, reading))
                ahead += window.size
            if not under_way:
                return
            window, reading = under_way.popleft()
            data = reading.result()
            ahead -= window.size
            yield window, data
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
