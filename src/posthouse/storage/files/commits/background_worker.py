"""The thread for what may take long: the catalog, checkpoints, removing files. One after the other."""

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
        """After all that was asked for before. `failure` is what the log says where it does not work."""
        self._worker.submit(work, *args, **kwargs).add_done_callback(partial(_log_failure, failure))

    def remove(self, segments: Sequence[Segment]) -> None:
        """Remove the files of segments that are no longer part of any log, in the background."""
        if segments:
            what = f"{segments[0].path}: not all of {len(segments)} segments could be deleted"
            self.later(what, self._remove, segments)

    def _remove(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            remove_segment(self._disk, segment)
            self._files.drop(segment.path)  # after it, or a reader could open the file once more in between

    def close(self) -> None:
        self._worker.shutdown()


def _log_failure(failure: str, done: Future[Any]) -> None:
    error = done.exception()
    if error is not None:
        log.error("%s", failure, exc_info=error)
