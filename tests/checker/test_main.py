"""Saved histories are judged from the command line."""

from pathlib import Path

import pytest

from tests.checker.__main__ import main
from tests.checker.history import Fault, FinalRead, History, Outcome, Send
from tests.checker.model.generate import generate

LOST = History(
    [
        Send(1, 1, 2, ("orders", 0), 7, Outcome.OK, 0),
        Fault(3, "power-cut"),
        FinalRead(("orders", 0), False, 0, 0, []),
    ]
)


def test_good_histories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for seed, file in enumerate(files):
        generate(seed, 300).save(file)
    assert main([str(file) for file in files]) == 0
    assert capsys.readouterr().out.count("no anomalies") == 2


def test_a_bad_history_fails_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    generate(1, 300).save(good)
    LOST.save(bad)
    assert main([str(bad), str(good)]) == 1
    said = capsys.readouterr().out
    assert "3 operations: 1 Fault, 1 FinalRead, 1 Send" in said
    assert "1 faults: 1 power-cut" in said
    assert "7 was acknowledged in orders-0 at 0, where there is nothing" in said


def test_a_lossy_broker_may_lose(tmp_path: Path) -> None:
    LOST.save(tmp_path / "bad.jsonl")
    assert main(["--lossy", str(tmp_path / "bad.jsonl")]) == 0


def test_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--speed", "--operations", "2000"]) == 0
    assert "a second" in capsys.readouterr().out
