"""The journal's files: what is written is read again, what is not whole is not."""

import errno
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.storage.files.journal.head import read_head
from posthouse.storage.files.journal.journal import (
    FRAME_HEADER,
    FRAME_MAGIC,
    PUT,
    PUT_OPERATION,
    SPARE,
    Journal,
    file_name,
    head_path,
    journal_files,
)
from posthouse.storage.files.journal.reader import Frame, Gap, PutEntry, read_journal
from posthouse.storage.files.system.disk import OsDisk
from tests.examples import examples
from tests.storage.faults import FaultyDisk

DISK = OsDisk()


def put(key: bytes, value: bytes) -> bytes:
    return PUT_OPERATION.pack(PUT, 1, len(key), len(value)) + key + value


def make_journal(directory: Path, file_bytes: int = 200, *, number: int = 1) -> Journal:
    directory.mkdir(exist_ok=True)
    journal = Journal(DISK, str(directory), file_bytes, os.urandom)
    journal.start(number)
    return journal


def write(journal: Journal, value: bytes) -> int:
    operation = put(b"key", value)
    return journal.write([operation], len(operation), sync=False)


def values(directory: Path, after: int | None = 0) -> list[bytes | None]:
    found = []
    for item in read_journal(DISK, str(directory), after):
        assert isinstance(item, Frame)
        for entry in item.entries:
            assert isinstance(entry, PutEntry)
            found.append(entry.value)
    return found


def test_frames_come_back_in_order_over_many_files(tmp_path: Path) -> None:
    journal = make_journal(tmp_path)
    written = [b"%d" % number * (number % 40) for number in range(100)]
    assert [write(journal, value) for value in written] == list(range(1, 101))
    assert len(journal_files(DISK, str(tmp_path))) > 10
    assert values(tmp_path) == written
    assert values(tmp_path, 60) == written[60:]
    assert values(tmp_path, None) == written


def test_files_are_used_again_and_their_old_frames_are_not_seen(tmp_path: Path) -> None:
    journal = make_journal(tmp_path)
    for number in range(1, 200):
        write(journal, b"x" * 30)
        journal.release(number)
        assert len(list(tmp_path.iterdir())) <= 3
        assert len(values(tmp_path, number)) == 0
    assert (tmp_path / SPARE).exists()


def test_nothing_is_left_to_read_after_a_clean_end(tmp_path: Path) -> None:
    journal = make_journal(tmp_path)
    last = write(journal, b"value")
    journal.release(last)
    journal.close(everything_checkpointed=True)
    assert not journal_files(DISK, str(tmp_path))
    assert not values(tmp_path, last)


def test_a_missing_file_is_a_gap_even_if_nothing_follows(tmp_path: Path) -> None:
    journal = make_journal(tmp_path)
    for _ in range(20):
        write(journal, b"x" * 30)
    files = journal_files(DISK, str(tmp_path))
    Path(files[1].path).unlink()
    gaps = [item for item in read_journal(DISK, str(tmp_path), 0) if isinstance(item, Gap)]
    assert [(gap.first, gap.next) for gap in gaps] == [(files[1].first, files[2].first)]
    for file in files[2:-1]:
        Path(file.path).unlink()
    Path(files[-1].path).write_bytes(b"")
    *_, gap = read_journal(DISK, str(tmp_path), 0)
    assert isinstance(gap, Gap) and gap.next == files[-1].first


@settings(max_examples=examples(60), deadline=None)
@given(
    contents=st.lists(st.binary(max_size=50) | st.just(FRAME_MAGIC * 9), min_size=2, max_size=9),
    where=st.floats(0, 1, exclude_max=True),
    change=st.integers(1, 255),
)
def test_a_changed_byte_costs_one_frame(contents: list[bytes], where: float, change: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "journal"
        journal = make_journal(place, 4096)
        ends = []
        for value in contents:
            write(journal, value)
            ends.append(journal._position)
        journal.close(everything_checkpointed=False)
        [file] = journal_files(DISK, str(place))
        stored = bytearray(Path(file.path).read_bytes())
        at = int(ends[-1] * where)
        stored[at] ^= change
        Path(file.path).write_bytes(stored)
        hit = next(number for number, end in enumerate(ends) if at < end)
        items = list(read_journal(DISK, str(place), 0))
        frames = [item.number for item in items if isinstance(item, Frame)]
        assert frames == [number + 1 for number in range(len(contents)) if number != hit]
        gaps = [(item.first, item.next) for item in items if isinstance(item, Gap)]
        assert gaps == ([] if hit == len(contents) - 1 else [(hit + 1, hit + 2)])


def test_a_full_disk_at_the_start_is_no_reason_not_to_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("allocate", number=28)
    journal = Journal(disk, str(tmp_path), 200, os.urandom)
    journal.start(1)
    assert not list(tmp_path.iterdir()), "what it got of a full disk is given back"
    assert write(journal, b"value") == 1
    assert values(tmp_path) == [b"value"]


def test_a_client_cannot_make_recovery_search_for_ever(tmp_path: Path) -> None:
    """A damaged frame is full of bytes that look like the headers of long frames."""
    journal = make_journal(tmp_path, 8 * 1024 * 1024)
    fake = FRAME_HEADER.pack(FRAME_MAGIC, 1, 2**40, 2 * 1024 * 1024, 1)
    write(journal, fake * (4 * 1024 * 1024 // len(fake)))
    write(journal, b"behind")
    [file] = journal_files(DISK, str(tmp_path))
    with Path(file.path).open("r+b") as stored:
        stored.write(b"x")
    began = time.process_time()
    gap, frame = read_journal(DISK, str(tmp_path), 0)
    assert time.process_time() - began < 5
    assert isinstance(gap, Gap) and isinstance(frame, Frame) and frame.number == 2


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("is_running", [False, True], ids=["start", "roll"])
def test_a_head_that_cannot_be_begun_names_no_file_that_is_not_there(
    tmp_path: Path, number: int, failing: int, is_running: bool
) -> None:
    """The new file goes again, and whatever the head has of it must not be missed."""
    directory = tmp_path / "journal"
    directory.mkdir()
    disk = FaultyDisk()
    last = 0
    for _ in range(2):
        journal = Journal(disk, str(directory), 100, os.urandom)
        if not is_running:
            disk.fail("write", "*.head", number, after=failing)
        with suppress(OSError):
            journal.start(last + 1)
            last = write(journal, b"x" * 30)
            journal.acknowledge()
            if is_running:
                disk.fail("write", "*.head", number, after=failing)
                last = write(journal, b"x" * 30)
                journal.acknowledge()
        disk.heal()
        head = read_head(disk, head_path(str(directory)))
        found = list(read_journal(disk, str(directory), 0, head))
        assert [item.number for item in found if isinstance(item, Frame)] == list(range(1, last + 1))
        assert not [item for item in found if isinstance(item, Gap)]
        journal.close(everything_checkpointed=False)


def test_the_head_is_never_ahead_of_the_journal(tmp_path: Path) -> None:
    """At every moment it names the file that is written, and the last frame that was acknowledged."""
    directory = tmp_path / "journal"
    journal = make_journal(directory)
    for number in range(1, 60):
        before = read_head(DISK, head_path(str(directory)))
        assert before is not None and before.written == number - 1
        assert write(journal, b"x" * 30) == number
        between = read_head(DISK, head_path(str(directory)))
        assert between is not None and between.written == number - 1
        journal.acknowledge()
        after = read_head(DISK, head_path(str(directory)))
        assert after is not None and after.written == number and after.synced < number
        assert (directory / file_name(after.first, after.salt)).exists()
        assert not [item for item in read_journal(DISK, str(directory), 0, after) if isinstance(item, Gap)]
    journal.close(everything_checkpointed=True)
    closed = read_head(DISK, head_path(str(directory)))
    assert closed is not None and not closed.names_file
