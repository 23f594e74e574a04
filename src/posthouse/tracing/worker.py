"""The thread that looks into batches and makes spans, so that the event loop does not.

The event loop only appends to a deque. The thread looks there every 50 ms: to wake it for every job would
make the two compete for the interpreter. For the same reason it pauses after each slice of work.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05
_SLICE_SECONDS: Final = 0.0005
_PAUSE_SECONDS: Final = 0.0005
_WARN_SECONDS: Final = 60.0

MOST_JOBS: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of the batches that waiting jobs keep in memory."""

Job = Callable[[], None]


class TracingWorker:
    """`submit` is for the event loop alone; `close` for any thread."""

    def __init__(self, *, most_jobs: int = MOST_JOBS, most_bytes: int = MOST_BYTES) -> None:
        self._most_jobs = most_jobs
        self._most_bytes = most_bytes
        self._jobs: deque[tuple[Job, int]] = deque()
        # Each counter has one writer: the difference is what waits, and needs no lock.
        self._submitted_bytes = 0
        self._done_bytes = 0
        self.dropped = 0
        """Jobs that found no room."""
        self._warned_at: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="posthouse-tracing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job, size: int) -> None:
        """Done soon, in order; dropped while too much waits. `size` bytes stay in memory until then."""
        waiting = self._submitted_bytes - self._done_bytes
        if len(self._jobs) >= self._most_jobs or waiting + size > self._most_bytes:
            self._drop()
            return
        self._submitted_bytes += size
        self._jobs.append((job, size))

    def _drop(self) -> None:
        self.dropped += 1
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at > _WARN_SECONDS:
            self._warned_at = now
            log.warning(
                "tracing is behind: %d batches or hands of messages were not traced so far; "
                "let producers sample fewer traces",
                self.dropped,
            )

    def close(self, seconds: float) -> bool:
        """Finish what waits; False if that takes longer than `seconds`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self._work()
        self._work()

    def _work(self) -> None:
        began = time.perf_counter()
        while self._jobs:
            job, size = self._jobs.popleft()
            try:
                job()
            except Exception:  # one batch must not end the tracing of all others
                log.exception("a batch could not be traced")
            self._done_bytes += size
            if time.perf_counter() - began > _SLICE_SECONDS:
                time.sleep(_PAUSE_SECONDS)
                began = time.perf_counter()
