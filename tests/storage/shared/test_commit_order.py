"""Commits on the two paths take effect in the order of the calls, whatever becomes of their answers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from posthouse.model.errors import StorageFenced
from posthouse.storage.operations import Put
from posthouse.storage.shared.commits.commit_call import CommitCall
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.test_committer import partitions_in

KEY = b"key"


class HeldAnswers:
    """The calls of a path count at once, but each answer waits for a `release`."""

    def __init__(self, call: CommitCall) -> None:
        self._ask = call._ask
        self._released = asyncio.Semaphore(0)
        call._ask = self.ask  # type: ignore[method-assign]

    def release(self, answers: int) -> None:
        for _ in range(answers):
            self._released.release()

    async def ask(self, statement: str, values: Sequence[Any]) -> Sequence[Any]:
        row = await self._ask(statement, values)
        if "commit_group" in statement:
            await self._released.acquire()
        return row


class LostAnswer:
    """The first call of a path ends with a broken connection, and so does all else until `is_back`."""

    def __init__(self, call: CommitCall, *, counts: bool) -> None:
        self._ask = call._ask
        self._counts = counts
        self._is_first = True
        self.is_back = False
        call._ask = self.ask  # type: ignore[method-assign]

    async def ask(self, statement: str, values: Sequence[Any]) -> Sequence[Any]:
        if self._is_first and self._counts:
            await self._ask(statement, values)
        if self._is_first or not self.is_back:
            self._is_first = False
            raise psycopg.OperationalError("the connection broke")
        return await self._ask(statement, values)


async def test_the_object_path_does_not_overtake_an_inline_commit_of_the_same_partition(
    shared: SharedStorage,
) -> None:
    """Also if the inline commit came while a group of the object path was being gathered."""
    slow, fast = await partitions_in(shared)
    other = make_topic("other")
    await shared.create_topics([other])
    held = HeldAnswers(shared._committer._inline.call)
    busy = shared.commit([append(other.partition(0), b"busy")])
    await asyncio.sleep(0.01)
    ahead = shared.commit([append(slow, b"ahead")])
    await asyncio.sleep(0.1)  # its group waits for the inline path
    first = shared.commit([append(fast, b"first")])
    second = shared.commit([append(slow, b"beside"), append(fast, b"second")])
    held.release(1)
    await asyncio.gather(busy, ahead)
    await asyncio.sleep(0.1)
    assert not first.done() and not second.done()
    held.release(1)
    await asyncio.gather(first, second)
    assert [first.result()[0].base_offset, second.result()[1].base_offset] == [0, 1]
    assert await read_all(shared, fast) == {0: b"first", 1: b"second"}


async def test_a_group_of_the_object_path_waits_for_inline_commits_until_it_is_formed(
    shared: SharedStorage, objects: FaultyObjectStore
) -> None:
    """It is formed after a while of gathering; what came inline meanwhile is ahead of some of its commits."""
    slow, fast = await partitions_in(shared)
    held = HeldAnswers(shared._committer._inline.call)
    gathering = shared.commit([append(slow, b"gathering")])
    await asyncio.sleep(0.01)
    first = shared.commit([append(fast, b"first")])
    second = shared.commit([append(slow, b"beside"), append(fast, b"second")])
    await asyncio.sleep(0.2)
    assert objects.calls["put"] == 1, "uploads do not wait"
    assert not gathering.done() and not second.done()
    held.release(1)
    await asyncio.gather(gathering, first, second)
    assert await read_all(shared, fast) == {0: b"first", 1: b"second"}


@pytest.mark.parametrize("counts", [True, False])
async def test_the_object_path_waits_for_an_inline_commit_in_doubt(
    shared: SharedStorage, database: Database, counts: bool
) -> None:
    slow, fast = await partitions_in(shared)
    lost = LostAnswer(shared._committer._inline.call, counts=counts)
    first = shared.commit([append(fast, b"first"), Put(Space.USERS, KEY, b"first")])
    await asyncio.sleep(0.01)
    second = shared.commit(
        [append(slow, b"beside"), append(fast, b"second"), Put(Space.USERS, KEY, b"second")]
    )
    await asyncio.sleep(0.2)
    assert not first.done() and not second.done()
    lost.is_back = True
    await asyncio.gather(first, second)
    assert await read_all(shared, fast) == {0: b"first", 1: b"second"}
    connection = await database.connect("tests")
    found = await connection.execute("SELECT value FROM state WHERE space = %s", [int(Space.USERS)])
    assert await found.fetchall() == [(b"second",)]
    await connection.close()


async def test_a_fenced_inline_path_stops_the_object_path(
    shared: SharedStorage,
    objects: FaultyObjectStore,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of the broker itself: the lease is still held, so the database would take the commit."""
    slow, fast = await partitions_in(shared)
    objects.gate.clear()
    waiting = shared.commit([append(slow, b"1")])
    await asyncio.sleep(0.1)  # it is being uploaded
    monkeypatch.setattr(shared._tails, "add", None)
    with pytest.raises(StorageFenced):
        await shared.commit([append(fast, b"1")])
    objects.gate.set()
    with pytest.raises(StorageFenced):
        await waiting
    connection = await database.connect("tests")
    found = await connection.execute("SELECT next FROM log WHERE id = %s", [shared._logs[slow].id])
    assert await found.fetchall() == [(0,)]
    await connection.close()
