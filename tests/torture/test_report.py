"""The table of docs/reliability.md: what stays, what is replaced, and what the command line takes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.torture.__main__ import BY_NAME, chosen_entries, main
from tests.torture.report import BEGIN, END, ENOUGH_ROUNDS, Figures, Run, load, write
from tools.checkout import commit


def _run(
    rounds: int, *, anomalies: int = 0, control: str = "lost write", command: str = "make torture"
) -> Run:
    figures = Figures(
        "kill", command, "2030-01-01", "abc", "", 1, rounds, 1000, rounds, anomalies, 6.0, control
    )
    return Run(command, "2030-01-01", "abc", {"kill": figures})


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "reliability.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    return path


def test_the_table_is_between_its_marks(page: Path) -> None:
    write(_run(1000), page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n")
    assert (
        "| kill | 1,000 | 1,000 | 1 | 1,000 | 0 | caught: lost write | 0.1 "
        "|  | abc | 2030-01-01, `make torture` |" in text
    )
    assert "old" not in text


def test_a_later_run_replaces_a_longer_one_if_it_has_enough_rounds(page: Path) -> None:
    write(_run(1000, command="long"), page)
    write(_run(ENOUGH_ROUNDS - 1, command="short"), page)
    assert load(page.with_suffix(".json"))["kill"].command == "long"
    write(_run(ENOUGH_ROUNDS, command="later"), page)
    assert load(page.with_suffix(".json"))["kill"].command == "later"


def test_a_short_run_replaces_one_that_is_as_short(page: Path) -> None:
    write(_run(9, command="old"), page)
    write(_run(8, command="shorter"), page)
    assert load(page.with_suffix(".json"))["kill"].command == "old"
    write(_run(9, command="new"), page)
    assert load(page.with_suffix(".json"))["kill"].command == "new"


@pytest.mark.parametrize("bad", [{"anomalies": 1}, {"control": ""}])
def test_what_was_found_stays_until_as_many_rounds_find_nothing(page: Path, bad: dict[str, Any]) -> None:
    write(_run(100, command="bad", **bad), page)
    write(_run(99, command="shorter"), page)
    assert load(page.with_suffix(".json"))["kill"].command == "bad"
    write(_run(100, command="as long"), page)
    assert load(page.with_suffix(".json"))["kill"].command == "as long"


def test_a_row_of_a_run_that_recorded_no_commit_says_so(page: Path) -> None:
    write(_run(1000), page)
    beside = page.with_suffix(".json")
    [row] = json.loads(beside.read_text())
    del row["commit"]
    beside.write_text(json.dumps([row]))
    write(Run("make torture", "2030-01-02", "abc", {}), page)
    assert "| 0.1 |  | not recorded | 2030-01-01, `make torture` |" in page.read_text()


@pytest.mark.parametrize("bad", [_run(10, anomalies=1), _run(10, control="")])
def test_a_run_that_found_something_is_always_shown(page: Path, bad: Run) -> None:
    write(_run(1000), page)
    write(bad, page)
    assert load(page.with_suffix(".json"))["kill"].rounds == 10


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("text")
    with pytest.raises(ValueError, match="no place for figures"):
        write(_run(1), path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kinds", "flood"], "there is no fault 'flood'"),
        (["--rounds", "flood:3"], "is not KIND:N"),
        (["--rounds", "kill"], "is not KIND:N"),
        (["--report", "no/such/page.md"], "No such file"),
    ],
)
def test_misuse_is_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert message in f"{ended.value} {capsys.readouterr().err}"


def test_a_run_without_a_mount_leaves_out_what_needs_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.torture.__main__.why_not", lambda: "not root")
    assert main(["--rounds", "power-cut:3"]) == 0
    assert "skipping power-cut: a file system cannot be mounted here (not root)" in capsys.readouterr().out


def test_kinds_of_all_catalogues_are_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.torture.__main__.why_no_namespaces", lambda: None)
    kinds = "kill,cluster-kill,net-cut"
    assert ",".join(entry.name for entry in chosen_entries(kinds)) == kinds
    monkeypatch.setattr("tests.torture.__main__.why_no_namespaces", lambda: "not root")
    assert [entry.name for entry in chosen_entries(kinds)] == ["kill", "cluster-kill"]
    assert "skipping net-cut: network namespaces cannot be made here (not root)" in capsys.readouterr().out


def test_no_fault_strikes_a_store_that_has_no_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.torture.__main__.why_no_namespaces", lambda: None)
    monkeypatch.setattr("tests.torture.__main__.why_no_s3", lambda: None)
    kinds = "cluster-objects,net-store,net-mixed"
    assert ",".join(entry.name for entry in chosen_entries(kinds)) == kinds
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("tests.torture.__main__.why_no_s3", lambda: "no Go")
    assert [entry.name for entry in chosen_entries(kinds)] == ["cluster-objects", "net-mixed"]
    told = capsys.readouterr().out
    assert "skipping net-store: there is no S3 server (no Go)" in told
    assert "no fault of the object store in net-mixed: objects are in a directory (no Go)" in told


@pytest.mark.parametrize(
    ("program", "stores"), [(None, ["", "directory", "directory"]), ("s3", ["", "directory", "S3 server"])]
)
def test_a_row_names_the_store_of_its_brokers(
    program: str | None, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.torture.network.kind.s3_program", lambda: program)
    kinds = [BY_NAME[name].make() for name in ("kill", "cluster-kill", "net-kill")]
    assert [kind.store for kind in kinds] == stores


@pytest.mark.xdist_group("torture")
def test_a_run_writes_its_report(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "clock-jump:1", "--seed", "5", "--report", str(page)]) == 0
    row = load(page.with_suffix(".json"))["clock-jump"]
    assert (row.rounds, row.anomalies) == (1, 0)
    assert row.control and row.operations
    assert (row.commit, row.store) == (commit(), "")
    assert row.command == "make torture ROUNDS=clock-jump:1 SEED=5"
    assert "clock-jump: 1 rounds" in capsys.readouterr().out
