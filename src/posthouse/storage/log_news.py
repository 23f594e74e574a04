"""What brokers that share a storage tell each other of their commits."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class LogNews(NamedTuple):
    """Bounds of a log after a commit. The database is the truth: news may be lost, and may come late.

    A tuple, because there are many of them in a second.
    """

    log: int
    """The number of the log in the storage."""
    start: int
    end: int
    stable: int


Grown = Callable[[Sequence[LogNews]], None]
"""Told what commits have changed. It must not raise."""
