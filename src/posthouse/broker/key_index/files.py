"""Where the files of the index are: in the data directory, or in memory.

    data/key-index/<topic id>/<partition>-<first offset>-<end offset>.keys

All calls block, and are made on the index's threads.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from posthouse.model.ids import TopicId

UNFINISHED: Final = ".part"
"""Suffix of a file while it is written."""


class IndexFiles(Protocol):
    """Raises OSError."""

    @property
    def outlive_the_broker(self) -> bool:
        """Whether there may be some at the start."""

    def topics(self) -> list[TopicId]: ...

    def names(self, topic: TopicId) -> list[str]: ...

    def size(self, topic: TopicId, name: str) -> int: ...

    def read(self, topic: TopicId, name: str, size: int, position: int) -> bytes:
        """Fewer bytes at the end of the file; none if it is gone."""

    def write(self, topic: TopicId, name: str, parts: Sequence[bytes]) -> None:
        """Durable, and whole or not there."""

    def remove(self, topic: TopicId, names: Sequence[str]) -> None:
        """Durable: a file that came back could be of a log that has been written anew."""

    def remove_topic(self, topic: TopicId) -> None: ...


class IndexDisk(Protocol):
    """What it needs of a disk."""

    def open(self, path: str, *, create: bool = False) -> int: ...

    def close(self, handle: int) -> None: ...

    def write(self, handle: int, buffers: Sequence[bytes], position: int) -> None: ...

    def read(self, handle: int, size: int, position: int) -> bytes: ...

    def sync(self, handle: int) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def truncate(self, handle: int, size: int) -> None: ...

    def size(self, path: str) -> int: ...

    def names(self, path: str) -> list[str]: ...

    def make_directory(self, path: str) -> list[str]: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...


class DiskFiles:
    def __init__(self, disk: IndexDisk, directory: str) -> None:
        self._disk = disk
        self._root = f"{directory}/key-index"
        self.outlive_the_broker = True

    def topics(self) -> list[TopicId]:
        found = []
        for name in self._disk.names(self._root):
            try:
                found.append(TopicId(bytes.fromhex(name)))
            except ValueError:
                continue  # not ours: it stays
        return found

    def names(self, topic: TopicId) -> list[str]:
        return self._disk.names(self._directory(topic))

    def size(self, topic: TopicId, name: str) -> int:
        return self._disk.size(f"{self._directory(topic)}/{name}")

    def read(self, topic: TopicId, name: str, size: int, position: int) -> bytes:
        try:
            handle = self._disk.open(f"{self._directory(topic)}/{name}")
        except FileNotFoundError:
            return b""
        try:
            return self._disk.read(handle, size, position)
        finally:
            self._disk.close(handle)

    def write(self, topic: TopicId, name: str, parts: Sequence[bytes]) -> None:
        directory = self._directory(topic)
        for changed in self._disk.make_directory(directory):
            self._disk.sync_directory(changed)
        path = f"{directory}/{name}"
        handle = self._disk.open(path + UNFINISHED, create=True)
        try:
            self._disk.truncate(handle, 0)
            self._disk.write(handle, parts, 0)
            self._disk.sync(handle)
        finally:
            self._disk.close(handle)
        self._disk.rename(path + UNFINISHED, path)
        self._disk.sync_directory(directory)

    def remove(self, topic: TopicId, names: Sequence[str]) -> None:
        directory = self._directory(topic)
        for name in names:
            self._disk.remove(f"{directory}/{name}")
        if names and self._disk.size(directory) >= 0:
            self._disk.sync_directory(directory)

    def remove_topic(self, topic: TopicId) -> None:
        directory = self._directory(topic)
        self.remove(topic, self._disk.names(directory))
        self._disk.remove_directory(directory)

    def _directory(self, topic: TopicId) -> str:
        return f"{self._root}/{topic.hex()}"


class MemoryFiles:
    """For a broker whose log is in memory, too."""

    def __init__(self) -> None:
        self._files: dict[TopicId, dict[str, bytes]] = {}
        self.outlive_the_broker = False

    def topics(self) -> list[TopicId]:
        return list(self._files)

    def names(self, topic: TopicId) -> list[str]:
        return list(self._files.get(topic, ()))

    def size(self, topic: TopicId, name: str) -> int:
        return len(self._files[topic][name])

    def read(self, topic: TopicId, name: str, size: int, position: int) -> bytes:
        return self._files.get(topic, {}).get(name, b"")[position : position + size]

    def write(self, topic: TopicId, name: str, parts: Sequence[bytes]) -> None:
        self._files.setdefault(topic, {})[name] = b"".join(parts)

    def remove(self, topic: TopicId, names: Sequence[str]) -> None:
        for name in names:
            self._files.get(topic, {}).pop(name, None)

    def remove_topic(self, topic: TopicId) -> None:
        self._files.pop(topic, None)
