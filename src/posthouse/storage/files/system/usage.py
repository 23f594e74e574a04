"""How full the disk of the data directory is.

The disk is looked at in a thread of its own, because a disk that hangs must not take the threads that others
use. There is one look at a time: all who ask meanwhile share its answer.
"""

import asyncio
import contextlib
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    free_bytes: int | None = None
    total_bytes: int | None = None
    journal_bytes: int | None = None
    failure: str | None = None
    """Why the disk could not be looked at; the numbers are None then."""


class UsageProbe:
    def __init__(self, directory: Path, *, seconds: float = _SECONDS) -> None:
        """A look that takes longer than `seconds` counts as failed."""
        self._directory = directory
        self._seconds = seconds
        self._looking: asyncio.Future[DiskUsage] | None = None

    async def look(self) -> DiskUsage:
        looking = self._looking
        if looking is None:
            loop = asyncio.get_running_loop()
            looking = self._looking = loop.create_future()
            thread = threading.Thread(
                target=self._run, args=(loop, looking), name="posthouse-disk-usage", daemon=True
            )
            thread.start()
        try:
            return await asyncio.wait_for(asyncio.shield(looking), self._seconds)
        except TimeoutError:
            return DiskUsage(failure=f"the disk of {self._directory} does not answer")

    def _run(self, loop: asyncio.AbstractEventLoop, looking: "asyncio.Future[DiskUsage]") -> None:
        usage = _usage(self._directory)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its callers with it
            loop.call_soon_threadsafe(self._seen, looking, usage)

    def _seen(self, looking: "asyncio.Future[DiskUsage]", usage: DiskUsage) -> None:
        self._looking = None
        looking.set_result(usage)


def _usage(directory: Path) -> DiskUsage:
    try:
        disk = shutil.disk_usage(directory)
        journal = sum(map(_size, (directory / "journal").iterdir()))
    except OSError as error:
        return DiskUsage(failure=f"{directory} cannot be read: {error.strerror}")
    return DiskUsage(free_bytes=disk.free, total_bytes=disk.total, journal_bytes=journal)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # recycled or removed since it was listed
        return 0
