"""The comparison with another commit, in tiny volumes: every figure has its pair, and no files are left."""

from pathlib import Path

import pytest

from bench import compare


def test_both_are_measured_with_the_same_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = compare.ROOT / "src"
    before, after = list(compare._measured(source, 0.01)), list(compare._measured(None, 0.01))
    assert [each.name for each in before] == [each.name for each in after]
    assert len(before) == 10
    assert all(each.value > 0 for each in after if not each.name.endswith("CPU"))
    assert list(tmp_path.glob(".bench/*")) == []


def test_a_ratio_above_one_is_better() -> None:
    faster = compare.ratio(compare.Figure("rate", 100, "/s"), compare.Figure("rate", 150, "/s"))
    cheaper = compare.ratio(compare.Figure("cost", 3, "µs", True), compare.Figure("cost", 2, "µs", True))
    assert faster == cheaper == 1.5
