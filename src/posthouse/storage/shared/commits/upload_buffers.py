"""Memory for the bytes of uploads, used again and again.

The system has to map and clear fresh memory of some megabytes page by page, which takes several times as long
as filling it. Measured with 8 MiB objects, that was a third of the event loop's time.
"""

from collections.abc import Sequence

_LEAST = 1024 * 1024
"""Less is cheap, because the allocator keeps it."""
_KEPT = 4


class UploadBuffers:
    """Owned by the event loop."""

    def __init__(self, size: int) -> None:
        """`size`: of most uploads, at most."""
        self._size = size
        self._free: list[bytearray] = []

    def filled(self, parts: Sequence[memoryview], size: int) -> bytes | memoryview:
        """The parts, which have `size` bytes, one after the other."""
        if not _LEAST <= size <= self._size:
            return b"".join(parts)
        buffer = memoryview(self._free.pop() if self._free else bytearray(self._size))
        position = 0
        for part in parts:
            end = position + len(part)
            buffer[position:end] = part
            position = end
        return buffer[:size]

    def recycle(self, data: bytes | memoryview) -> None:
        """To be called when the upload succeeded: after a failure the store may still be reading `data`."""
        if isinstance(data, memoryview) and isinstance(data.obj, bytearray) and len(self._free) < _KEPT:
            self._free.append(data.obj)
