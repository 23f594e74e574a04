"""Looking into a broker's files: whole ones, damaged ones, those of a running broker and of a killed one."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.records.compression import Codec
from posthouse.storage.files.journal.journal import FRAME_HEADER, journal_files
from posthouse.storage.files.journal.reader import frames_in
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.files.verify import Finding, Verification
from posthouse.testing import running_broker
from tests.cli.programs import inside, one_sentence, posthouse

BATCHES = 12
SEGMENTS = 4


def fill(kafka: str, **settings: str) -> None:
    """One partition, three batches of ten records in each of four segments."""
    with Client(kafka) as client:
        client.create_topic("t", partitions=1, settings={"internal.segment.bytes": "3500", **settings})
        with client.producer("t", codec=Codec.NONE) as producer:
            for number in range(BATCHES * 10):
                producer.send(b"%03d" % number + b"v" * 90, b"k", [("h", b"x")], partition=0)
                if number % 10 == 9:
                    producer.flush()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that was stopped well."""
    directory = tmp_path_factory.mktemp("original") / "data"
    with running_broker(data=directory) as broker:
        fill(broker.kafka)
    return directory


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


def segments(data: Path) -> list[Path]:
    return sorted(data.glob("topics/*/0-*.log"))


def findings(data: Path) -> list[Finding]:
    return list(Verification(data).findings())


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def test_a_whole_directory(data: Path) -> None:
    before = contents(data)
    done = posthouse("log", "verify", data, "--json")
    assert done.returncode == 0, done
    [tally] = [json.loads(line) for line in done.stdout.splitlines()]
    size = sum(path.stat().st_size for path in segments(data))
    assert tally == {
        "event": "done",
        "damaged": False,
        "topics": 1,
        "segments": SEGMENTS,
        "batches": BATCHES,
        "records": BATCHES * 10,
        "bytes": size,
        "frames": 0,
    }
    assert contents(data) == before, "nothing is changed, and nothing is left behind"


def test_damage_is_named_with_file_bytes_and_offsets(data: Path) -> None:
    second = segments(data)[1]
    flip(second, 1500)
    done = inside("log", "verify", data)
    assert done.returncode == 1
    [line] = done.stdout.splitlines()
    length = (second.stat().st_size - HEADER_BYTES) // 3
    first, last = HEADER_BYTES + length, HEADER_BYTES + 2 * length - 1
    assert line == f"DAMAGED {second}: no whole batches are here, bytes {first} to {last}, offsets 40 to 49"
    assert done.stderr.startswith("there is damage, see above")


@pytest.mark.parametrize("number", range(SEGMENTS))
@pytest.mark.parametrize("position", [0, 8, 12, 16, 17, 21, 60, 61, 1000, -1])
def test_a_flipped_bit_anywhere_in_a_segment_is_found(data: Path, number: int, position: int) -> None:
    path = segments(data)[number]
    flip(path, position if position < 0 else HEADER_BYTES + position)
    [finding] = findings(data)
    assert finding.is_damage and finding.path == str(path)
    assert (finding.next_offset or 0) - (finding.first_offset or 0) == 10


@pytest.mark.parametrize("position", range(0, HEADER_BYTES, 5))
def test_a_flipped_bit_in_a_header_is_found(data: Path, position: int) -> None:
    path = segments(data)[1]
    flip(path, position)
    [finding] = findings(data)
    assert (finding.path, finding.problem) == (str(path), "its header is damaged")
    assert finding.first_offset == finding.next_offset == 30


@pytest.mark.parametrize("cut", [1, 61, 1500, 10**6])
def test_a_segment_that_is_too_short(data: Path, cut: int) -> None:
    path = segments(data)[-1]
    whole = path.stat().st_size
    left = max(whole - cut, 0)
    with path.open("r+b") as file:
        file.truncate(left)
    [finding] = findings(data)
    assert finding.problem == f"it ends at byte {left}"
    assert (finding.end, finding.next_offset) == (whole, 120)


def test_a_segment_that_is_gone(data: Path) -> None:
    path = segments(data)[2]
    path.unlink()
    [finding] = findings(data)
    assert (finding.problem, finding.first_offset, finding.next_offset) == ("it is missing", 60, 90)


def test_two_segments_that_changed_places(data: Path) -> None:
    first, second, *_ = segments(data)
    swapped = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(swapped)
    assert {finding.path for finding in findings(data)} == {str(first), str(second)}


@pytest.mark.parametrize("position", [0, 5, 30, -1])
def test_a_damaged_index(data: Path, position: int) -> None:
    index = segments(data)[0].with_suffix(".index")
    flip(index, position)
    [finding] = findings(data)
    assert finding.path == str(index) and finding.problem.endswith("reading rebuilds it")


def test_an_index_that_is_gone_short_or_wrong(data: Path) -> None:
    first, second, third, _ = (path.with_suffix(".index") for path in segments(data))
    first.unlink()
    with second.open("r+b") as file:
        file.truncate(second.stat().st_size - 1)
    third.write_bytes(second.read_bytes())
    assert [finding.path for finding in findings(data)] == [str(first), str(second), str(third)]


@pytest.mark.parametrize("table", ["meta", "topics", "partitions", "segments"])
def test_a_row_of_the_catalog_that_changed_by_itself(data: Path, table: str) -> None:
    with closing(sqlite3.connect(data / "catalog.sqlite")) as connection, connection:
        connection.execute(f"UPDATE {table} SET crc = crc + 1")
    found = findings(data)
    assert {finding.path for finding in found} == {str(data / "catalog.sqlite")}
    assert all(f"a row of table {table}" in finding.problem for finding in found)


@pytest.mark.parametrize("name", ["catalog.sqlite", "catalog.backup.sqlite"])
def test_a_catalog_that_is_garbage_or_gone(data: Path, name: str) -> None:
    path = data / name
    path.write_bytes(b"garbage" * 1000)
    [finding] = findings(data)
    assert finding.path == str(path) and "SQLite cannot read it" in finding.problem
    path.unlink()
    [finding] = findings(data)
    assert (finding.path, finding.problem) == (str(path), "it is missing")


def test_without_a_catalog_the_segments_are_still_checked(data: Path) -> None:
    (data / "catalog.sqlite").write_bytes(b"garbage" * 1000)
    damaged = segments(data)[0]
    flip(damaged, 1500)
    assert [finding.path for finding in findings(data)] == [str(data / "catalog.sqlite"), str(damaged)]


def test_files_of_no_topic_are_worth_a_note(data: Path) -> None:
    stray = data / "topics" / "00" / f"0-{0:020d}.log"
    stray.parent.mkdir(parents=True)
    stray.touch()
    [finding] = findings(data)
    assert (finding.path, finding.is_damage) == (str(stray), False)
    assert inside("log", "verify", data).returncode == 0


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker leaves that is killed before its first checkpoint: all that counts is in the journal."""
    directory = tmp_path_factory.mktemp("crashed")
    with running_broker(data=directory / "running") as broker:
        fill(broker.kafka)
        shutil.copytree(directory / "running", directory / "data")
    return directory / "data"


@pytest.fixture
def killed(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "data"))


def test_after_a_kill_the_journal_counts(killed: Path) -> None:
    verification = Verification(killed)
    assert list(verification.findings()) == []
    assert verification.tally.batches == BATCHES and verification.tally.frames == BATCHES


def test_what_the_journal_can_restore_is_worth_a_note(killed: Path) -> None:
    flip(segments(killed)[1], 1500)
    segments(killed)[3].unlink()
    found = findings(killed)
    assert [finding.is_damage for finding in found] == [False, False]
    assert all("from the journal" in finding.problem for finding in found)
    with running_broker(data=killed) as broker, Client(broker.kafka) as client:
        assert len(list(client.messages("t"))) == BATCHES * 10, "the note was right"


def test_a_torn_frame_behind_the_last_one_is_no_damage(killed: Path) -> None:
    """It was being written when the broker died: nothing of it was acknowledged."""
    [file] = journal_files(OsDisk(), str(killed / "journal"))
    journal = Path(file.path)
    content = journal.read_bytes()
    first, second, *_, last = (position for position, _, _ in frames_in(OsDisk(), file))
    end = last + FRAME_HEADER.size + FRAME_HEADER.unpack_from(content, last)[3]
    torn = content[first:second][: (second - first) // 2]
    journal.write_bytes(content[:end] + torn + content[end + len(torn) :])
    with segments(killed)[-1].open("ab") as segment:
        segment.write(segments(killed)[-1].read_bytes()[:100])
    assert findings(killed) == []


def test_a_frame_that_was_acknowledged_and_cannot_be_read(killed: Path) -> None:
    [journal] = (killed / "journal").glob("*.wal")
    frames = list(_positions(journal.read_bytes(), b"PHFR"))
    flip(journal, frames[5] + 30)
    frame, batch = findings(killed)
    assert frame.path == str(journal) and frame.problem == "frame 6 cannot be read"
    assert batch.path == str(segments(killed)[1]) and (batch.first_offset, batch.next_offset) == (50, 60)
    flip(journal, frames[5] + 30)
    flip(journal, frames[-1] + 30)
    frame, batch = findings(killed)
    assert frame.problem == f"frame {BATCHES} behind byte {frames[-1]} cannot be read" and frame.is_damage
    assert batch.path == str(segments(killed)[-1]) and "the next start keeps" in batch.problem
    assert (batch.first_offset, batch.next_offset) == (BATCHES * 10 - 10, BATCHES * 10)
    done = inside("log", "verify", killed)
    assert done.returncode == 1 and "offsets 110 to 119" in done.stdout
    with running_broker(data=killed) as broker, Client(broker.kafka) as client:
        assert len(list(client.messages("t"))) == BATCHES * 10, "the finding was right"
    assert findings(killed) == []


def test_a_running_broker_can_be_looked_at_while_it_writes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_broker(data=data, journal_bytes=65536) as broker, Client(broker.kafka) as client:
        client.create_topic(
            "t", partitions=2, settings={"internal.segment.bytes": "20000", "retention.bytes": "0"}
        )
        with client.producer("t", batch_bytes=2000) as producer:
            for number in range(3000):
                producer.send(b"v" * 200)
                if number % 300 == 0:
                    assert findings(data) == []
        assert inside("log", "verify", data).returncode == 0


def test_batches_of_a_segment(data: Path) -> None:
    done = inside("log", "dump", segments(data)[1])
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header[:6] == ["position", "bytes", "first", "last", "records", "codec"]
    assert [row[2:6] for row in rows] == [
        [str(first), str(first + 9), "10", "none"] for first in (30, 40, 50)
    ]


def test_records_of_a_segment(data: Path) -> None:
    done = inside("log", "dump", segments(data)[0], "--records")
    _, *rows = done.stdout.splitlines()
    assert len(rows) == 30
    assert (
        rows[7].split()[0] == "7"
        and " k " in rows[7]
        and "007vvv" in rows[7]
        and rows[7].split()[-1] == "h=x"
    )


def dumped(*arguments: str | Path) -> list[dict[str, Any]]:
    done = inside("log", "dump", *arguments, "--json")
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_dump_for_machines_shows_damage_too(data: Path) -> None:
    path = segments(data)[0]
    flip(path, 1500)
    first, damage, last = dumped(path, "--records")
    assert [record["offset"] for record in first["records"]] == list(range(10))
    assert first["records"][0]["headers"] == [["h", "x"]]
    assert (damage["damaged"], damage["first_offset"], damage["next_offset"]) == (True, 10, 20)
    assert (last["base_offset"], last["count"], last["codec"]) == (20, 10, "none")


def test_a_copy_with_another_name_can_be_dumped(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(segments(data)[2], copy)
    assert [batch["base_offset"] for batch in dumped(copy)] == [60, 70, 80]


def test_refusals(tmp_path: Path) -> None:
    assert "is no data directory of a broker" in one_sentence(inside("log", "verify", tmp_path), 1)
    assert "is a directory; name a file" in one_sentence(inside("log", "dump", tmp_path), 1)
    assert "check the path" in one_sentence(inside("log", "dump", tmp_path / "no"), 1)


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files}


def _positions(data: bytes, what: bytes) -> Iterator[int]:
    position = data.find(what)
    while position >= 0:
        yield position
        position = data.find(what, position + 1)
