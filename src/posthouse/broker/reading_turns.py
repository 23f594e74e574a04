"""Fair scheduling of large reads on the event loop.

Reads of bytes in the page cache run on the event loop. When a hundred consumers catch up at once, each with
megabytes, all of that would be read before other clients are served. So each iteration of the loop has a
budget of bytes for reads, and further reads wait in FIFO order. Short reads are always done at once.
"""

import asyncio
from collections import deque

from posthouse.records.batch import iter_headers
from posthouse.storage.bounds import Slice

SHORT = 64 * 1024
_BYTES_PER_TURN = 1024 * 1024


class ReadingTurns:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._left = _BYTES_PER_TURN
        self._is_renewed = True
        """The budget of this iteration is fresh, or its renewal is scheduled."""
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def is_spent(self) -> bool:
        return self._left <= 0 or bool(self._line)

    def spend(self, size: int) -> None:
        self._left -= size
        self._renew_soon()

    async def next(self) -> None:
        """Wait in line for the next budget."""
        waiting = asyncio.get_running_loop().create_future()
        self._line.append(waiting)
        self._renew_soon()
        await waiting

    def _renew_soon(self) -> None:
        if self._is_renewed:
            self._is_renewed = False
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._is_renewed = True
        self._left = _BYTES_PER_TURN
        while self._line:
            first = self._line.popleft()
            if not first.done():  # its reader was not cancelled
                first.set_result(None)
                self._renew_soon()
                break


def reaches_end(found: Slice, offset: int, *, stable_only: bool) -> bool:
    """Whether the log has nothing behind what was found at `offset`."""
    for _, header in iter_headers(found.data):
        offset = header.next_offset
    return offset >= (found.bounds.stable if stable_only else found.bounds.end)
