"""The location of an archive: a local directory or an object store, with the guarantees that it needs.

    create      a file appears atomically, and is durable when the call returns
    create_new  the same, and of several creators of the same name only one succeeds

On a local file system a file is written under a temporary name, synced, moved, and the directory is synced;
`link` decides between several creators. Object stores show an object only when it is complete. Not all of
them can refuse an existing name, so a claim decides: every creator first puts an object with a name of its
own, then lists all claims on the same target. Of two creators, at least the later one sees the other and
gives up. This needs a listing that shows every earlier put, as in S3.
"""

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from posthouse.spark.archive.errors import ArchiveError

_TEMPORARY = ".tmp"
_CLAIMS = "_claims"
_CLAIM_SECONDS = 600
"""An older claim belongs to a crashed creator; a creator that needs longer than half of this gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    path: str
    bytes: int
    changed_ms: int


class Root:
    """Paths are relative to it, with slashes. Can be pickled."""

    def __init__(self, url: str) -> None:
        """`url` is a directory or an address that pyarrow supports, such as s3:

        bucket/prefix.
        """
        self.url = url
        self.is_local = "://" not in url or url.startswith("file://")
        try:
            if self.is_local:
                self._fs: fs.FileSystem = fs.LocalFileSystem()
                self._base = str(Path(url.removeprefix("file://")).expanduser().absolute())
            else:
                self._fs, self._base = fs.FileSystem.from_uri(_tuned(url))
        except (ValueError, OSError, pa.ArrowException) as error:
            raise ArchiveError(f"{url!r} is no place for an archive ({error}); name a directory") from None

    def __reduce__(self) -> tuple[type["Root"], tuple[str]]:
        return Root, (self._base if self.is_local else self.url,)

    def __str__(self) -> str:
        """Without the secrets that an address may contain."""
        if self.is_local:
            return self.url
        return f"{self.url.partition('://')[0]}://{self._base}"

    def location(self, path: str) -> str:
        """The address of a file for Spark's own readers."""
        if self.is_local:
            # Not escaped: Hadoop uses it literally.
            return f"file://{self._absolute(path)}"
        scheme = self.url.partition("://")[0]
        return f"{'s3a' if scheme == 's3' else scheme}://{self._absolute(path)}"

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        """A stream into a new file, which is durable when the block ends without an error."""
        place = self._absolute(path)
        if not self.is_local:
            with self._fs.open_output_stream(place) as stream:
                yield stream
            return
        target = Path(place)
        _make_directory(target.parent)
        temporary = target.with_name(f".{target.name}{_TEMPORARY}")
        try:
            with self._fs.open_output_stream(str(temporary)) as stream:
                yield stream
            _sync(temporary)
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync(target.parent)

    def create_new(self, path: str, data: bytes) -> None:
        """Raises FileExistsError if another creator was first, or may be."""
        if self.is_local:
            self._link_new(Path(self._absolute(path)), data)
        else:
            self._claim_new(path, data)

    def _link_new(self, target: Path, data: bytes) -> None:
        _make_directory(target.parent)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            temporary.write_bytes(data)
            _sync(temporary)
            target.hardlink_to(temporary)
        finally:
            temporary.unlink(missing_ok=True)
        _sync(target.parent)

    def _claim_new(self, path: str, data: bytes) -> None:
        began = time.monotonic()
        claims = f"{_CLAIMS}/{path}"
        claim = f"{claims}/{uuid.uuid4().hex}"
        self._put(claim, b"")
        try:
            oldest = time.time() * 1000 - _CLAIM_SECONDS * 1000
            others = [each for each in self.stored(claims) if each.path != claim and each.changed_ms > oldest]
            if others or self.sizes([path]) != [None]:
                raise FileExistsError(path)
            if time.monotonic() - began > _CLAIM_SECONDS / 2:
                raise ArchiveError(f"{self} answers too slowly to be written to; try again")
            self._put(path, data)
        finally:
            self.remove([claim])

    def _put(self, path: str, data: bytes) -> None:
        with self._fs.open_output_stream(self._absolute(path)) as stream:
            stream.write(data)

    def read(self, path: str) -> bytes:
        with self._fs.open_input_stream(self._absolute(path)) as stream:
            return bytes(stream.read())

    def open(self, path: str) -> pa.NativeFile:
        """For random access."""
        return self._fs.open_input_file(self._absolute(path))

    def stored(self, directory: str = "") -> list[StoredFile]:
        """All files below a directory; empty if it does not exist."""
        selector = fs.FileSelector(self._absolute(directory), recursive=True, allow_not_found=True)
        return [
            StoredFile(
                path=str(PurePosixPath(info.path).relative_to(self._base)),
                bytes=info.size or 0,
                changed_ms=info.mtime_ns // 1_000_000 if info.mtime_ns is not None else 0,
            )
            for info in self._fs.get_file_info(selector)
            if info.type is fs.FileType.File
        ]

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The size of each file; None if it does not exist."""
        infos = self._fs.get_file_info([self._absolute(path) for path in paths])
        return [info.size if info.type is fs.FileType.File else None for info in infos]

    def remove(self, paths: Iterable[str]) -> None:
        """Delete files; missing files are no error."""
        for path in paths:
            with suppress(FileNotFoundError):
                self._fs.delete_file(self._absolute(path))

    def _absolute(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base


def _tuned(url: str) -> str:
    """Small objects, such as versions of the manifest, are put with one request instead of three."""
    if not url.startswith("s3://") or "allow_delayed_open" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}allow_delayed_open=true"


def _make_directory(directory: Path) -> None:
    """Create a directory with its parents, each of them durably."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync(directory.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
