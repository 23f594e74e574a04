"""Places of archives: whole files or none, and one winner where several make the same."""

import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.root import Root, StoredFile


class Claiming(Root):
    """Decides by claims, as object stores do; `meanwhile` happens between a claim and the look at others."""

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory))
        self.is_local = False
        self.meanwhile: Callable[[], None] = lambda: None
        # Object stores need no directories.
        (directory / "_claims" / "version").mkdir(parents=True, exist_ok=True)

    def stored(self, directory: str = "") -> list[StoredFile]:
        act, self.meanwhile = self.meanwhile, lambda: None
        act()
        return super().stored(directory)


def lose(root: Root) -> None:
    with pytest.raises(FileExistsError):
        root.create_new("version", b"lost")


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    with root.create("a/b/file") as stream:
        stream.write(b"half")
        stream.flush()
        assert root.sizes(["a/b/file"]) == [None]
        stream.write(b", whole")
    assert root.read("a/b/file") == b"half, whole"
    with pytest.raises(ValueError, match="broken"), root.create("a/other") as stream:
        stream.write(b"half")
        raise ValueError("broken")
    assert [each.path for each in root.stored()] == ["a/b/file"]


def test_everything_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, then its name, then the directories that are new, from the top."""
    done: list[str] = []
    sync, rename = os.fsync, Path.rename

    def noted_sync(descriptor: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().relative_to(tmp_path)}")
        sync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        done.append(f"rename {target.relative_to(tmp_path)}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    with Root(str(tmp_path)).create("a/b/file") as stream:
        stream.write(b"x")
    assert done == ["sync .", "sync a", "sync a/b/.file.tmp", "rename a/b/file", "sync a/b"]


def test_only_one_makes_a_new_file(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    root.create_new("version", b"first")
    lose(root)
    assert root.read("version") == b"first"
    assert len(root.stored()) == 1


def test_by_claims_the_later_one_gives_up(tmp_path: Path) -> None:
    first, second = Claiming(tmp_path), Claiming(tmp_path)
    first.meanwhile = lambda: lose(second)
    first.create_new("version", b"first")
    lose(second)
    assert second.read("version") == b"first"
    assert [each.path for each in second.stored()] == ["version"]


def test_by_claims_two_who_see_each_other_both_give_up(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    class Together(Claiming):
        def stored(self, directory: str = "") -> list[StoredFile]:
            both.wait()
            found = super().stored(directory)
            both.wait()
            return found

    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(lose, Together(tmp_path)) for _ in range(2)]:
            done.result()
    assert Root(str(tmp_path)).stored() == []


def test_by_claims_who_looked_first_wins(tmp_path: Path) -> None:
    first, second = Claiming(tmp_path), Claiming(tmp_path)
    sizes = first.sizes

    def looked(paths: object) -> list[int | None]:
        lose(second)
        return sizes(paths)  # type: ignore[arg-type]

    first.sizes = looked  # type: ignore[method-assign]
    first.create_new("version", b"first")
    assert second.read("version") == b"first"


def test_by_claims_somebody_who_died_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    root = Claiming(tmp_path)
    dead = tmp_path / "_claims" / "version" / "dead"
    dead.touch()
    lose(root)
    os.utime(dead, (0, 0))
    root.create_new("version", b"first")


def test_a_root_can_be_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = Root("here")
    with root.create("file") as stream:
        stream.write(b"x")
    sent = pickle.dumps(root)
    monkeypatch.chdir("/")
    assert pickle.loads(sent).read("file") == b"x"
    assert root.location("file") == f"file://{tmp_path}/here/file"


def test_nonsense_is_said() -> None:
    with pytest.raises(ArchiveError, match="is no place for an archive"):
        Root("nowhere://x/y")
