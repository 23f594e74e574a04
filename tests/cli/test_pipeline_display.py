"""How far a pipeline is, as a terminal and as a log file see it."""

import io
import sys
from typing import Any

import pytest
from rich.console import Console

from posthouse.cli.pipeline_display import Display
from posthouse.spark.pipelines.progress import QueryState


def state(**more: Any) -> QueryState:
    values: dict[str, Any] = {
        "name": "q",
        "batch": 3,
        "records": 12_345,
        "rate": 678.9,
        "behind": 90,
        "batch_ms": 1200,
        "done": 0.5,
        "status": "working",
    }
    return QueryState(**(values | more))


def test_elsewhere_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(bounded=False) as display:
        display.show([state(batch=-1, status="starting")])
        assert capsys.readouterr().err == "", "nothing to say yet"
        display._said_at = 0.0
        display.show([state()])
        display.show([state(records=13_000)])
        assert capsys.readouterr().err == (
            "q: batch 3, 12,345 records, 679/s, 90 behind, 1,200 ms a batch, working\n"
        ), "not at every look"
        display.show([state(records=14_000, behind=None, status="ended")])
    assert capsys.readouterr().err == "q: batch 3, 14,000 records, 679/s, 1,200 ms a batch, ended\n"


def test_a_run_with_an_end_shows_how_near_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(bounded=True) as display:
        display.show([state(status="ended")])
    assert ", 50% done, ended" in capsys.readouterr().err


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Display(bounded=True) as display:
        display.show([state(), state(name="second", behind=None, batch=-1, status="failed")])
        table = display._table([state(), state(name="second", behind=None, batch=-1, status="failed")])
    assert "12,345" in terminal.getvalue()
    plain = Console(file=io.StringIO(), width=80)
    plain.print(table)
    header, _, first, second = plain.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert header.split() == ["query", "batch", "records", "per", "s", "behind", "took", "state", "done"]
    assert first.split()[:8] == ["q", "3", "12,345", "679", "90", "1,200", "ms", "working"]
    assert second.split()[:5] == ["second", "–", "12,345", "679", "–"]
