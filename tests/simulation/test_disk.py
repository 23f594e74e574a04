"""The simulated disk must lose what a real one may lose, and nothing else."""

import errno

import pytest

from tests.simulation.disk import SECTOR, Disk
from tests.simulation.world import PowerCut, World

FILE = "/data/file"


def make_disk(seed: int = 1) -> Disk:
    disk = Disk(World(seed))
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def write(disk: Disk, data: bytes, position: int = 0, *, path: str = FILE) -> int:
    handle = disk.open(path, create=True)
    disk.write(handle, [data], position)
    return handle


def content(disk: Disk, path: str = FILE) -> bytes | None:
    return disk.contents().get(path)


def test_what_was_synced_survives_a_power_cut() -> None:
    for seed in range(20):
        disk = make_disk(seed)
        disk.sync(write(disk, b"kept"))
        disk.sync_directory("/data")
        assert content(disk.inherited(power_failed=True)) == b"kept"


def test_what_was_not_synced_survives_the_end_of_a_process_only() -> None:
    assert content_after(power_failed=False) == {b"kept and written"}
    assert content_after(power_failed=True) == {b"kept and written", b"kept"}


def content_after(*, power_failed: bool) -> set[bytes | None]:
    found = set()
    for seed in range(30):
        disk = make_disk(seed)
        handle = write(disk, b"kept")
        disk.sync(handle)
        disk.sync_directory("/data")
        disk.write(handle, [b" and written"], 4)
        found.add(content(disk.inherited(power_failed=power_failed)))
    return found


def test_sectors_are_lost_one_by_one() -> None:
    found = set()
    for seed in range(60):
        disk = make_disk(seed)
        handle = write(disk, bytes(2 * SECTOR))
        disk.sync(handle)
        disk.sync_directory("/data")
        disk.write(handle, [b"x" * 2 * SECTOR], 0)
        after = content(disk.inherited(power_failed=True))
        assert after is not None
        found.add((after[0], after[SECTOR]))
    assert found == {(first, second) for first in (0, ord("x")) for second in (0, ord("x"))}


def test_a_name_without_a_synced_directory_may_be_lost() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        disk.sync(write(disk, b"kept"))
        found.add(content(disk.inherited(power_failed=True)))
    assert found == {None, b"kept"}


def test_a_file_goes_with_its_directory() -> None:
    found = set()
    for seed in range(20):
        disk = Disk(World(seed))
        disk.make_directory("/data")
        disk.sync(write(disk, b"kept"))
        disk.sync_directory("/data")
        found.add(content(disk.inherited(power_failed=True)))
    assert found == {None, b"kept"}


def test_a_rename_happens_or_does_not() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        disk.sync(write(disk, b"kept"))
        disk.sync_directory("/data")
        disk.rename(FILE, "/data/other")
        after = disk.inherited(power_failed=True)
        found.add((content(after), content(after, "/data/other")))
    assert found == {(b"kept", None), (None, b"kept")}


def test_a_removed_file_may_come_back() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        disk.sync(write(disk, b"kept"))
        disk.sync_directory("/data")
        disk.remove(FILE)
        found.add(content(disk.inherited(power_failed=True)))
    assert found == {None, b"kept"}


def test_after_a_failed_sync_the_next_one_lies() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        handle = write(disk, b"old")
        disk.sync(handle)
        disk.sync_directory("/data")
        disk.write(handle, [b"new"], 0)
        disk.syncs_to_fail = 1
        with pytest.raises(OSError, match="input/output error"):
            disk.sync(handle)
        disk.sync(handle)
        assert disk.read(handle, 3, 0) == b"new"
        found.add(content(disk.inherited(power_failed=True)))
    assert found == {b"old", b"new"}


def test_a_full_disk_takes_a_part() -> None:
    disk = make_disk()
    disk.room = 3
    with pytest.raises(OSError, match="no space left") as caught:
        write(disk, b"too much")
    assert caught.value.errno == errno.ENOSPC
    assert content(disk) == b"too"
    disk.room = None
    write(disk, b"enough")
    assert content(disk) == b"enough"


def test_overwriting_needs_no_room() -> None:
    disk = make_disk()
    handle = write(disk, b"12345")
    disk.room = 0
    disk.write(handle, [b"abc"], 1)
    assert content(disk) == b"1abc5"


def test_to_the_disk_of_a_dead_process_nothing_is_done() -> None:
    disk = make_disk()
    handle = write(disk, b"kept")
    heir = disk.inherited(power_failed=False)
    with pytest.raises(PowerCut):
        disk.write(handle, [b"gone"], 0)
    disk.close(handle)
    assert content(heir) == b"kept"
