"""The background thread for slow work: catalog writes, checkpoints, deleting files. One task at a time."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from posthouse.storage.files.segments.header import remove_segment
from posthouse.storage.files.segments.segment import Segment
from posthouse.storage.files.system.disk import Disk
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.files.system.workers import Workers

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundWorker:
    def __init__(self, disk: Disk, files: OpenFiles, workers: Workers) -> None:
        self._disk = disk
        self._files = files
        self._worker = workers.pool("posthouse-background", 1)

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, lambda: work(*args, **kwargs))

    def later(self, failure: str, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Queue the work behind all earlier tasks. `failure` is the log message if it raises."""
        self._worker.submit(work, *args, **kwargs).add_done_callback(partial(_log_failure, failure))

    def remove(self, segments: Sequence[Segment]) -> None:
        """Delete the files of segments that are no longer part of any log, in the background."""
        if segments:
            what = f"{segments[0].path}: not all of {len(segments)} segments could be deleted"
            self.later(what, self._remove, segments)

    def _remove(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            remove_segment(self._disk, segment)
            # After the removal: a reader could otherwise open the file again in between.
            self._files.drop(segment.path)

    def close(self) -> None:
        self._worker.shutdown()


def _log_failure(failure: str, done: Future[Any]) -> None:
    error = done.exception()
    if error is not None:
        log.error("%s", failure, exc_info=error)
