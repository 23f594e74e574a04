"""State that was put before a storage was opened, taken as a whole or owner by owner."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.contract import Storage
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Put
from posthouse.storage.owners import CLUSTER, owner_of
from posthouse.storage.spaces import Space
from tests.storage.stores import crash_copy, file_storage

Restart = Callable[[], Awaitable[Storage]]


@pytest.fixture(params=["memory", "stopped", "killed", "killed behind a checkpoint"])
async def restart(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Restart]:
    """Opens a storage; the next call stops it, or leaves it as a crash would, and opens what is left."""
    running: list[Storage] = []

    async def again() -> Storage:
        made: Storage
        if request.param == "memory":
            made = running[-1] if running else MemoryStorage(ManualClock())
        else:
            made = file_storage(tmp_path / str(len(running)))
        if running:
            last = running[-1]
            if not isinstance(last, MemoryStorage):
                if request.param != "stopped":
                    await crash_copy(last, tmp_path / str(len(running)))  # type: ignore[arg-type]
                else:
                    made = file_storage(tmp_path / "0")
            await last.close()
        await made.open()
        if request.param == "killed behind a checkpoint":
            await made.checkpoint()  # type: ignore[attr-defined]
        running.append(made)
        return made

    yield again
    await running[-1].close()


def offset(group: bytes, partition: int, value: bytes | None) -> Put:
    return Put(Space.OFFSETS, bytes(16) + partition.to_bytes(4, "big") + group, value)


async def test_one_owner_is_loaded_alone(restart: Restart) -> None:
    storage = await restart()
    await storage.commit(
        [offset(group, number, b"%d" % number) for group in (b"a", b"b") for number in (0, 1)]
    )
    await storage.commit([Put(Space.GROUPS, b"a", b"the group"), Put(Space.USERS, b"a", b"a user")])
    storage = await restart()
    assert storage.take_state(Space.OFFSETS, b"a") == {
        offset(b"a", number, None).key: b"%d" % number for number in (0, 1)
    }
    assert storage.take_state(Space.OFFSETS, b"a") == {}, "given out once"
    assert storage.take_state(Space.OFFSETS, b"unknown") == {}
    assert storage.take_state(Space.GROUPS, b"b") == {}
    assert storage.take_state(Space.GROUPS, b"a") == {b"a": b"the group"}
    assert storage.take_state(Space.USERS, CLUSTER) == {b"a": b"a user"}
    assert storage.take_state(Space.OFFSETS) == {
        offset(b"b", number, None).key: b"%d" % number for number in (0, 1)
    }, "what is left"
    assert storage.take_state(Space.OFFSETS) == {}


async def test_what_was_changed_and_removed_later(restart: Restart) -> None:
    storage = await restart()
    await storage.commit([offset(b"a", 0, b"1"), offset(b"a", 1, b"1"), offset(b"b", 0, b"1")])
    storage = await restart()
    await storage.commit([offset(b"a", 0, b"2"), offset(b"a", 1, None), offset(b"b", 0, None)])
    storage = await restart()
    assert storage.take_state(Space.OFFSETS, b"b") == {}
    assert storage.take_state(Space.OFFSETS) == {offset(b"a", 0, None).key: b"2"}


def test_every_space_has_owners() -> None:
    for space in Space:
        assert isinstance(owner_of(space, bytes(40)), bytes)
