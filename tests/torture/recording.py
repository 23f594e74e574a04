"""Keeps what clients did and were told, and counts how far they have come."""

import asyncio
import itertools
import time

from tests.checker.history import Fault, History, Operation

PATIENCE = 30.0
"""A broker under which no client comes any further for so long hangs."""


class NoProgress(Exception):
    """The broker runs and its clients wait."""


class Recorder:
    def __init__(self) -> None:
        self.history = History()
        self._values = itertools.count(1)
        self._processes = itertools.count(1)
        self._transactions = itertools.count(1)
        self._done = 0
        self._moved = asyncio.Event()
        self._refused = asyncio.Event()

    def now(self) -> int:
        return time.monotonic_ns()

    def value(self) -> int:
        return next(self._values)

    def process(self) -> int:
        return next(self._processes)

    def transaction(self) -> int:
        return next(self._transactions)

    def add(self, operation: Operation) -> None:
        self.history.append(operation)

    def fault(self, name: str) -> None:
        self.add(Fault(self.now(), name))

    def moved(self) -> None:
        """Something that the broker promised was done."""
        self._done += 1
        self._moved.set()

    def refused(self) -> None:
        """The broker said that it cannot store anything."""
        self._refused.set()

    async def refusal(self) -> None:
        """Wait until the broker refuses something."""
        self._refused.clear()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._refused.wait()
        except TimeoutError:
            raise NoProgress(f"nothing was refused for {PATIENCE:g} s") from None

    async def progress(self, count: int) -> None:
        """Wait until so many more promises were made."""
        wanted = self._done + count
        while self._done < wanted:
            self._moved.clear()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._moved.wait()
            except TimeoutError:
                raise NoProgress(f"nothing was acknowledged for {PATIENCE:g} s") from None
