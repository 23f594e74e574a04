"""The audit log: every line is there once the broker has stopped, and nobody can fill the disk with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.access import audit as audit_module
from posthouse.broker.access.audit import Audit
from posthouse.broker.access.principal import Principal
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidConfig

ANN = Principal("ann")


def say(audit: Audit, resource: str = "topic:t", *, allowed: bool = True, detail: str = "") -> None:
    audit.record(ANN, "127.0.0.1:1", "kafka", "write", resource, allowed=allowed, detail=detail)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a log that is written only when it is closed."""
    monkeypatch.setattr(audit_module, "_EVERY_SECONDS", 3600.0)
    return tmp_path / "logs" / "audit.log"


def test_a_line(path: Path) -> None:
    audit = Audit(path, ManualClock(1_700_000_000_123))
    audit.open()
    say(audit, allowed=False, detail="why")
    audit.close()
    assert lines(path) == [
        {
            "time": "2023-11-14T22:13:20.123Z",
            "principal": "User:ann",
            "peer": "127.0.0.1:1",
            "protocol": "kafka",
            "action": "write",
            "resource": "topic:t",
            "allowed": False,
            "detail": "why",
        }
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_repeats_is_counted(path: Path) -> None:
    audit = Audit(path, ManualClock())
    audit.open()
    for _ in range(3):
        say(audit)
    say(audit, allowed=False)
    audit.close()
    assert [(each["allowed"], each.get("count")) for each in lines(path)] == [(True, 3), (False, None)]


def test_nobody_fills_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "_MOST_A_SECOND", 5)
    audit = Audit(path, ManualClock())
    audit.open()
    for number in range(100):
        say(audit, f"topic:{number}" + "x" * 10_000)
    say(audit, "topic:0" + "x" * 10_000)
    audit.close()
    told = lines(path)
    assert len(told) == 6
    assert told[0]["count"] == 2
    assert (told[-1]["action"], told[-1]["count"]) == ("left-out", 95)
    assert path.stat().st_size < 10_000


def test_it_only_grows(path: Path) -> None:
    for resource in ("topic:a", "topic:b"):
        audit = Audit(path, ManualClock())
        audit.open()
        say(audit, resource)
        audit.close()
    assert [each["resource"] for each in lines(path)] == ["topic:a", "topic:b"]


def test_a_name_cannot_forge_a_line(path: Path) -> None:
    audit = Audit(path, ManualClock())
    audit.open()
    say(audit, 'topic:x"}\n{"principal": "User:admin"')
    audit.close()
    assert [each["principal"] for each in lines(path)] == ["User:ann"]


def test_it_is_written_while_the_broker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "_EVERY_SECONDS", 0.001)
    path = tmp_path / "audit.log"
    audit = Audit(path, ManualClock())
    audit.open()
    say(audit)
    for _ in range(1000):
        if path.stat().st_size:
            break
        audit._wake.wait(0.01)
    assert len(lines(path)) == 1
    audit.close()


def test_one_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="cannot be written"):
        Audit(tmp_path / "file" / "audit.log", ManualClock()).open()


def test_none() -> None:
    audit = Audit(None, ManualClock())
    audit.open()
    assert not audit.is_on
    say(audit)
    audit.close()


def test_a_log_that_was_moved_away_is_begun_again(path: Path) -> None:
    audit = Audit(path, ManualClock())
    audit.open()
    say(audit, "topic:before")
    audit._write()
    path.rename(path.with_suffix(".old"))
    say(audit, "topic:after")
    audit.close()
    assert [each["resource"] for each in lines(path.with_suffix(".old"))] == ["topic:before"]
    assert [each["resource"] for each in lines(path)] == ["topic:after"]
