"""A real disk that can be made to fail, to wait and to count."""

import errno
import os
import threading
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch

from posthouse.storage.files.system.disk import Buffer, OsDisk


class FaultyDisk(OsDisk):
    """Counts calls by name; `fail` arms one error, `sync_gate` holds syncs back while it is clear."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes_read: Counter[str] = Counter()
        self.most_open = 0
        self.sync_gate = threading.Event()
        self.sync_gate.set()
        self.sync_began = threading.Event()
        self._paths: dict[int, str] = {}
        self._armed: list[_Fault] = []

    def fail(
        self, call: str, path: str = "*", number: int = errno.EIO, *, after: int = 0, for_ever: bool = False
    ) -> None:
        """Let a call on files whose path matches fail, once or until `heal`; the first `after` succeed."""
        self._armed.append(_Fault(call, path, number, after, for_ever))

    def heal(self) -> None:
        self._armed.clear()

    def _enter(self, call: str, path: str) -> None:
        self.calls[call] += 1
        for fault in list(self._armed):
            if fault.call == call and fnmatch(path, fault.path):
                if fault.after:
                    fault.after -= 1
                    continue
                if not fault.for_ever:
                    self._armed.remove(fault)
                raise OSError(fault.number, os.strerror(fault.number), path)

    def open(self, path: str, *, create: bool = False) -> int:
        self._enter("create" if create and not os.path.exists(path) else "open", path)  # noqa: PTH110
        handle = super().open(path, create=create)
        self._paths[handle] = path
        self.most_open = max(self.most_open, len(self._paths))
        return handle

    def close(self, handle: int) -> None:
        del self._paths[handle]
        super().close(handle)

    @property
    def open_files(self) -> list[str]:
        return sorted(self._paths.values())

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        try:
            self._enter("write", self._paths[handle])
        except OSError:
            # As a disk that becomes full does it: part of the bytes are there.
            data = b"".join(buffers)
            super().write(handle, [data[: len(data) // 2]], position)
            raise
        super().write(handle, buffers, position)

    def read(self, handle: int, size: int, position: int) -> bytes:
        self._enter("read", self._paths[handle])
        data = super().read(handle, size, position)
        self.bytes_read[self._paths[handle]] += len(data)
        return data

    def read_now(self, handle: int, size: int, position: int) -> bytearray | None:
        self._enter("read_now", self._paths[handle])
        data = super().read_now(handle, size, position)
        self.bytes_read[self._paths[handle]] += len(data or b"")
        return data

    def sync(self, handle: int) -> None:
        self.sync_began.set()
        self.sync_gate.wait()
        self._enter("sync", self._paths[handle])
        super().sync(handle)

    def sync_directory(self, path: str) -> None:
        self._enter("sync_directory", path)
        super().sync_directory(path)

    def sync_everything(self, path: str) -> None:
        self._enter("sync_everything", path)
        super().sync_everything(path)

    def allocate(self, handle: int, size: int) -> None:
        self._enter("allocate", self._paths[handle])
        super().allocate(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        self._enter("truncate", self._paths[handle])
        super().truncate(handle, size)

    def rename(self, old: str, new: str) -> None:
        self._enter("rename", old)
        super().rename(old, new)
        self._paths = {handle: new if path == old else path for handle, path in self._paths.items()}


class _Fault:
    def __init__(self, call: str, path: str, number: int, after: int, for_ever: bool) -> None:
        self.call = call
        self.path = path
        self.number = number
        self.after = after
        self.for_ever = for_ever
