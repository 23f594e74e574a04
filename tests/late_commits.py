"""Commits of a storage that take as long as a test says."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome


class LateCommits:
    def __init__(self, storage: Storage) -> None:
        self._commit = storage.commit
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        return asyncio.ensure_future(self._later(operations))

    async def _later(self, operations: Sequence[Operation]) -> list[Outcome]:
        self.began.set()
        await self.go_on.wait()
        return await self._commit(operations)


@contextmanager
def late_commits(storage: Storage) -> Iterator[LateCommits]:
    """Those that begin inside wait for `go_on`."""
    late = LateCommits(storage)
    with mock.patch.object(storage, "commit", late.commit):
        yield late
