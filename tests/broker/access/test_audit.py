"""The audit log: no change is missing in it, and nobody can fill the disk or the memory with it."""

import asyncio
import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.access import audit as audit_module
from posthouse.broker.access import audit_limit
from posthouse.broker.access.audit import LOGIN, Audit
from posthouse.broker.access.principal import Principal
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidConfig, Unavailable

ANN, BEN = Principal("ann"), Principal("ben")
PEER = "127.0.0.1:1"
SECONDS = 60


def say(
    audit: Audit,
    resource: str = "topic:t",
    *,
    allowed: bool = True,
    detail: str = "",
    who: Principal = ANN,
    action: str = "delete",
    peer: str = PEER,
) -> int:
    return audit.record(who, peer, "kafka", action, resource, allowed=allowed, detail=detail)


def log_in(audit: Audit, who: str, *, allowed: bool, peer: str = PEER) -> int:
    return say(audit, "PLAIN", allowed=allowed, who=Principal(who), action=LOGIN, peer=peer)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a log whose intervals end only when it is closed."""
    monkeypatch.setattr(audit_module, "_EVERY_SECONDS", 3600.0)
    return tmp_path / "logs" / "audit.log"


@pytest.fixture
def audit(path: Path) -> Iterator[Audit]:
    made = Audit(path, ManualClock(1_700_000_000_123))
    made.open()
    yield made
    made.close()


class Disk:
    """Stands between the log and its file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write = os.write
        self.room: int | None = None
        """Bytes until it is full; None: it never is."""
        monkeypatch.setattr(os, "write", self.write)

    def write(self, file: int, data: bytes) -> int:
        if self.room is None:
            return self._write(file, data)
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_line(audit: Audit, path: Path) -> None:
    say(audit, allowed=False, detail="why")
    audit.close()
    assert lines(path) == [
        {
            "time": "2023-11-14T22:13:20.123Z",
            "principal": "User:ann",
            "peer": "127.0.0.1:1",
            "protocol": "kafka",
            "action": "delete",
            "resource": "topic:t",
            "allowed": False,
            "detail": "why",
        }
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_refusals_that_repeat_are_counted(audit: Audit, path: Path) -> None:
    for _ in range(3):
        say(audit, allowed=False)
    say(audit, "topic:other", allowed=False)
    audit.close()
    assert [each.get("count") for each in lines(path)] == [3, None]


def test_refusals_cannot_hide_a_change(audit: Audit, path: Path) -> None:
    """Neither of the one who was refused, nor of others, nor those of somebody else's refusals."""
    for number in range(1500):
        say(audit, f"topic:{number}", allowed=False)
    say(audit, "topic:after")
    say(audit, "topic:others", who=BEN)
    say(audit, "topic:not-ben's", who=BEN, allowed=False)
    log_in(audit, "ann", allowed=True)
    audit.close()
    told = lines(path)
    assert {each["resource"] for each in told if each["allowed"]} == {"topic:after", "topic:others", "PLAIN"}
    assert [each["resource"] for each in told if each.get("principal") == "User:ben"] == [
        "topic:others",
        "topic:not-ben's",
    ]
    [summary] = [each for each in told if each["action"] == "left-out"]
    assert summary["source"] == "User:ann"
    assert (summary["count"], summary["actions"]) == (1400, {"delete": 1400})
    assert summary["allowed"] is False


def test_any_number_of_changes(audit: Audit, path: Path) -> None:
    for number in range(3000):
        say(audit, f"topic:{number}")
    audit.close()
    assert [each["resource"] for each in lines(path)] == [f"topic:{number}" for number in range(3000)]


def test_failed_logins_are_counted_by_address(audit: Audit, path: Path) -> None:
    """The name is whatever somebody said."""
    for number in range(250):
        log_in(audit, f"user-{number}", allowed=False, peer=f"10.0.0.7:{number}")
        log_in(audit, f"user-{number}", allowed=False, peer=f"[2001:db8::{number:x}]:9")
    log_in(audit, "ann", allowed=False, peer="10.0.0.8:1")
    audit.close()
    told = lines(path)
    assert "10.0.0.8:1" in {each.get("peer") for each in told}
    left_out = {each["source"]: each["actions"] for each in told if each["action"] == "left-out"}
    assert left_out == {"10.0.0.7": {"login": 150}, "2001:db8::/64": {"login": 150}}


def test_a_user_who_logs_in_again_and_again_hides_no_login_from_elsewhere(audit: Audit, path: Path) -> None:
    for number in range(250):
        log_in(audit, "ann", allowed=True, peer=f"10.0.0.7:{number}")
    log_in(audit, "ann", allowed=True, peer="10.0.0.8:1")
    audit.close()
    told = lines(path)
    assert told[-2]["peer"] == "10.0.0.8:1"
    assert (told[-1]["source"], told[-1]["allowed"]) == ("User:ann at 10.0.0.7", True)


def test_nobody_fills_the_disk_or_the_memory(
    audit: Audit, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_limit, "LINES", 50)
    monkeypatch.setattr(audit_limit, "SOURCES", 10)
    for number in range(1000):
        log_in(audit, "x" * 16_000, allowed=False, peer=f"10.0.{number // 250}.{number % 250}:1")
    assert len(audit._refused_logins._left_out) <= 11
    audit.close()
    told = lines(path)
    assert len(told) == 61
    assert told[-1]["source"] == audit_limit.OTHERS
    assert sum(each["count"] for each in told[50:]) == 950
    assert path.stat().st_size < 61 * 1000


def test_what_clients_make_up_is_cut(audit: Audit, path: Path) -> None:
    say(audit, "topic:" + "t" * 30_000, detail="d" * 9999, who=Principal("p" * 16_000))
    audit.close()
    [told] = lines(path)
    assert told["principal"] == "User:" + "p" * 251 + "… (16005 characters)"
    assert told["resource"] == "topic:" + "t" * 250 + "… (30006 characters)"
    assert told["detail"] == "d" * 256 + "… (9999 characters)"


def test_it_only_grows(path: Path) -> None:
    for resource in ("topic:a", "topic:b"):
        audit = Audit(path, ManualClock())
        audit.open()
        say(audit, resource)
        audit.close()
    assert [each["resource"] for each in lines(path)] == ["topic:a", "topic:b"]


@pytest.mark.parametrize("between", ["\n", "\r", "\x85", "\u2028", "\x1b[2K", "\u202e", "\ud800"])
def test_a_name_cannot_forge_a_line(audit: Audit, path: Path, between: str) -> None:
    say(audit, f'topic:x"}}{between}{{"principal": "User:admin"')
    audit.close()
    assert [each["principal"] for each in lines(path)] == ["User:ann"]
    assert path.read_text().isascii()


async def test_a_change_is_on_disk_before_its_client_hears_of_it(audit: Audit, path: Path) -> None:
    say(audit, "topic:refused", allowed=False)
    change = say(audit)
    assert change > 0
    async with asyncio.timeout(SECONDS):
        await audit.written(change)
    assert [each["resource"] for each in lines(path)] == ["topic:t"]
    await audit.written(change)
    await audit.written(0)


def test_one_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="cannot be written"):
        Audit(tmp_path / "file" / "audit.log", ManualClock()).open()


def test_none() -> None:
    audit = Audit(None, ManualClock())
    audit.open()
    assert not audit.is_on
    assert say(audit) == 0
    assert audit.is_written(1)
    audit.close()


async def test_a_log_that_was_moved_away_is_begun_again(audit: Audit, path: Path) -> None:
    await audit.written(say(audit, "topic:before"))
    path.rename(path.with_suffix(".old"))
    say(audit, "topic:after")
    audit.close()
    assert [each["resource"] for each in lines(path.with_suffix(".old"))] == ["topic:before"]
    assert [each["resource"] for each in lines(path)] == ["topic:after"]


class Syncs:
    """Which directories are synced, and whether that works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fsync = os.fsync
        self.of: list[Path] = []
        self.is_failing = False
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, handle: int) -> None:
        if self.is_failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.of.append(Path(f"/proc/self/fd/{handle}").readlink())
        self._fsync(handle)


def test_the_names_of_a_new_log_and_its_directories_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    audit = Audit(tmp_path / "logs" / "deep" / "audit.log", ManualClock())
    audit.open()
    audit.close()
    assert syncs.of == [tmp_path, tmp_path / "logs", tmp_path / "logs" / "deep"]


async def test_a_line_counts_as_written_once_the_name_of_its_file_is_durable(
    audit: Audit, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log was rotated."""
    syncs = Syncs(monkeypatch)
    async with asyncio.timeout(SECONDS):
        await audit.written(say(audit, "topic:before"))
        path.rename(path.with_suffix(".old"))
        syncs.is_failing = True
        await audit.written(say(audit, "topic:after"))
    assert "1 changes wait in memory" in caplog.text
    syncs.is_failing = False
    audit.close()
    assert syncs.of == [path.parent]
    assert [each["resource"] for each in lines(path)] == ["topic:after"]
    assert "no change is missing" in caplog.text


async def test_a_full_disk_holds_up_nobody_and_loses_no_change(
    audit: Audit, path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """The line that was torn is ended, and written again."""
    disk.room = 20
    async with asyncio.timeout(SECONDS):
        await audit.written(say(audit, "topic:a"))
        await audit.written(say(audit, "topic:b"))
    assert "1 changes wait in memory" in caplog.text
    disk.room = None
    say(audit, "topic:c")
    audit.close()
    torn, *whole = path.read_text().splitlines()
    assert len(torn) == 20
    assert [json.loads(line)["resource"] for line in whole] == ["topic:a", "topic:b", "topic:c"]
    assert "no change is missing" in caplog.text


async def test_lines_that_were_written_whole_are_not_written_again(
    audit: Audit, path: Path, disk: Disk
) -> None:
    disk.room = 250
    async with asyncio.timeout(SECONDS):
        await audit.written(say(audit, "topic:a"))
        await audit.written(say(audit, "topic:b"))
    disk.room = None
    audit.close()
    resources = [json.loads(line)["resource"] for line in path.read_text().splitlines() if line[-1] == "}"]
    assert resources == ["topic:a", "topic:b"]


async def test_nothing_is_changed_that_could_not_be_written_down(
    audit: Audit, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_MOST_UNWRITTEN", 3)
    disk.room = 0
    async with asyncio.timeout(SECONDS):
        for number in range(3):
            await audit.written(say(audit, f"topic:{number}"))
    with pytest.raises(Unavailable, match="cannot be written"):
        say(audit, "topic:3")
    say(audit, "topic:3", allowed=False)
    disk.room = None


async def test_changes_that_could_never_be_written_are_in_the_other_log(
    audit: Audit, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.room = 0
    async with asyncio.timeout(SECONDS):
        await audit.written(say(audit, "topic:last"))
    audit.close()
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert any("not written before the stop" in line and "topic:last" in line for line in told)


def test_a_line_that_was_torn_by_a_kill_is_ended(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"time": "20')
    audit = Audit(path, ManualClock())
    audit.open()
    say(audit)
    audit.close()
    torn, whole = path.read_text().splitlines()
    assert torn == '{"time": "20'
    assert json.loads(whole)["resource"] == "topic:t"
