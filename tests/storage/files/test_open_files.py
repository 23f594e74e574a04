import os
from pathlib import Path

import pytest

from posthouse.model.errors import DataDamaged
from posthouse.storage.files.system import open_files
from posthouse.storage.files.system.open_files import OpenFiles
from tests.storage.faults import FaultyDisk


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def paths(tmp_path: Path, count: int) -> list[str]:
    made = [tmp_path / str(number) for number in range(count)]
    for path in made:
        path.write_bytes(b"")
    return [str(path) for path in made]


def test_the_least_recently_used_file_is_closed(tmp_path: Path, disk: FaultyDisk) -> None:
    files = OpenFiles(disk, 2)
    first, second, third = paths(tmp_path, 3)
    for path in (first, second, first, third):
        files.release(files.acquire(path))
    assert disk.open_files == [first, third]


def test_a_file_in_use_is_never_closed(tmp_path: Path, disk: FaultyDisk) -> None:
    files = OpenFiles(disk, 1)
    first, second, third = paths(tmp_path, 3)
    held = files.acquire(first)
    also_held = files.acquire(second)
    assert disk.open_files == [first, second]
    files.drop(first)
    assert disk.open_files == [first, second]
    files.release(held)
    assert disk.open_files == [second]
    files.release(also_held)
    files.release(files.acquire(third))
    assert disk.open_files == [third]


def test_the_set_shrinks_to_its_limit_when_files_are_given_back(tmp_path: Path, disk: FaultyDisk) -> None:
    files = OpenFiles(disk, 2)
    held = [files.acquire(path) for path in paths(tmp_path, 6)]
    for file in held:
        files.release(file)
    files.release(files.acquire(held[-1].path))
    assert len(disk.open_files) <= 2


def test_a_dropped_path_is_opened_anew(tmp_path: Path, disk: FaultyDisk) -> None:
    files = OpenFiles(disk, 4)
    [path] = paths(tmp_path, 1)
    old = files.acquire(path)
    files.drop(path)
    new = files.acquire(path)
    assert old.handle != new.handle
    files.release(old)
    files.release(new)
    files.close()
    assert not disk.open_files


def test_a_file_that_is_not_there_leaves_nothing_behind(tmp_path: Path, disk: FaultyDisk) -> None:
    files = OpenFiles(disk, 2)
    with pytest.raises(FileNotFoundError):
        files.acquire(str(tmp_path / "nothing"))
    assert len(files) == 0


def test_a_file_is_checked_once_and_another_one_with_its_path_too(tmp_path: Path, disk: FaultyDisk) -> None:
    checked: list[str] = []
    files = OpenFiles(disk, 1, lambda handle, path, wait: checked.append(path))
    first, second = paths(tmp_path, 2)
    for path in (first, second) * 3:
        files.release(files.acquire(path))
    assert checked == [first, second]
    os.rename(first, f"{first}.old")  # noqa: PTH104
    [first] = paths(tmp_path, 1)
    files.release(files.acquire(first))
    assert checked == [first, second, first]


def test_a_file_that_fails_its_check_is_checked_again(tmp_path: Path, disk: FaultyDisk) -> None:
    def refuse(handle: int, path: str, wait: bool) -> None:
        checked.append(path)
        raise DataDamaged(path)

    checked: list[str] = []
    files = OpenFiles(disk, 1, refuse)
    [path] = paths(tmp_path, 1)
    for _ in range(2):
        with pytest.raises(DataDamaged):
            files.acquire(path)
    assert checked == [path, path] and not disk.open_files


def test_a_dropped_path_is_checked_again(tmp_path: Path, disk: FaultyDisk) -> None:
    """Another file may get the number of the one that is removed."""
    checked: list[str] = []
    files = OpenFiles(disk, 4, lambda handle, path, wait: checked.append(path))
    [path] = paths(tmp_path, 1)
    for _ in range(2):
        files.release(files.acquire(path))
        files.drop(path)
    assert checked == [path, path]


def test_what_is_remembered_is_bounded(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "REMEMBERED", 2)
    files = OpenFiles(disk, 1)
    for path in paths(tmp_path, 5):
        files.release(files.acquire(path))
    assert len(files._known) == 2
