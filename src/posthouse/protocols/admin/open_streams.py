"""How many streams of records clients have open: in all, and of one user or address."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from posthouse.protocols.admin.problems import Problem

MOST_STREAMS: Final = 1000
MOST_OF_ONE: Final = 100
"""Of a user, or of an address without logins."""


class OpenStreams:
    """Owned by the event loop."""

    def __init__(self, *, most: int = MOST_STREAMS, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    def check(self, owner: str) -> None:
        """Raises Problem if there is no room for another stream."""
        if self._open.total() >= self._most:
            raise Problem(503, "too many clients stream records; close one, or try again later")
        if self._open[owner] >= self._most_of_one:
            raise Problem(429, f"{owner} streams records too many times; close one")

    @contextmanager
    def entered(self, owner: str) -> Iterator[None]:
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]
