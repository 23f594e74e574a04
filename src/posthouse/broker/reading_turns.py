"""Reading much without keeping others waiting.

Reads that the system answers from memory happen on the event loop. When a hundred consumers catch up at once,
each with megabytes, all of that would be read before anybody else is served. So a turn of the loop has only
so much reading in it, and who wants more waits in line. Short reads are always done at once.
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
        """Or will be, with the next turn."""
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def is_spent(self) -> bool:
        return self._left <= 0 or bool(self._line)

    def spend(self, size: int) -> None:
        self._left -= size
        self._renew_soon()

    async def next(self) -> None:
        """Wait in line until something may be read again."""
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
            if not first.done():  # it was not given up
                first.set_result(None)
                self._renew_soon()
                break


def reaches_end(found: Slice, offset: int, *, stable_only: bool) -> bool:
    """Whether nothing is left behind what was found at `offset`."""
    for _, header in iter_headers(found.data):
        offset = header.next_offset
    return offset >= (found.bounds.stable if stable_only else found.bounds.end)
