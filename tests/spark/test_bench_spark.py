"""The page of `make bench-spark`, from made-up figures; no Spark is started."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

pyspark = pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from bench.spark import report  # noqa: E402
from bench.spark.contests import Contender, contest  # noqa: E402
from bench.spark.figures import Entry, Line, Missing, Ratio, Spread, Times  # noqa: E402
from bench.spark.report import Circumstances  # noqa: E402
from bench.spark.sessions import SessionFailed  # noqa: E402

READING = "Reading: 100 B values"
FULL = Circumstances(command="make bench-spark", rounds=3, is_trial=False, connector=pyspark.__version__)
ENTRIES: list[Entry] = [
    Line(
        section=READING,
        name="(a) our source",
        value=Spread(2_000_000, 1_900_000, 2_100_000),
        unit="rows/s",
        megabytes=216,
        ratios=(
            Ratio(spread=Spread(0.7, 0.65, 0.72), to="b", aim=0.6),
            Ratio(spread=Spread(1.2, 1.1, 1.6), to="e", aim=1.5),
        ),
    ),
    Line(
        section=READING,
        name="(b) ready-made Arrow batches",
        value=Spread(3_000_000, 2_900_000, 3_000_000),
        unit="rows/s",
        is_yardstick=True,
    ),
    Missing(
        section=READING,
        name="(d) plain Parquet",
        reason="there was no room",
        open_aims=("(c) ≥ 0.90 × d",),
    ),
    Line(section="A micro-batch", name="posthouse → noop", value=Spread(80, 70, 95.5), unit="ms"),
]


def test_the_page_has_every_figure_with_its_spread() -> None:
    page = report.document(ENTRIES, FULL)
    assert (
        "| (a) our source | 2,000,000 (1,900,000 – 2,100,000) rows/s | 216 "
        "| 0.70 (0.65 – 0.72) × b; 1.20 (1.10 – 1.60) × e "
        "| ≥ 0.60 × b: reached; ≥ 1.50 × e: missed |"
    ) in page
    assert "| posthouse → noop | 80.0 (70.0 – 95.5) ms |  |  |  |" in page
    assert page.index("## Reading: 100 B values") < page.index("## A micro-batch")
    assert "`make bench-spark` made this page." in page


def test_the_page_says_what_was_missed_and_what_is_missing() -> None:
    page = report.document(ENTRIES, FULL)
    assert "1 of 2 comparisons that have an aim reached it." in page
    assert (
        "- missed: Reading: 100 B values, (a) our source: 1.20 (1.10 – 1.60) × e, and 1.50 was the aim"
        in page
    )
    assert "- not measured: (d) plain Parquet: there was no room; whether (c) ≥ 0.90 × d is open" in page
    assert "| (d) plain Parquet | not measured | | | |" in page


def test_the_page_of_a_trial_and_of_another_connector_says_so() -> None:
    assert "as a trial" not in report.document(ENTRIES, FULL)
    assert "as a trial" in report.document(ENTRIES, replace(FULL, is_trial=True))
    assert "not the one of this" not in report.document(ENTRIES, FULL)
    assert "connector of Spark 1.2.3 on Spark" in report.document(ENTRIES, replace(FULL, connector="1.2.3"))


def test_the_picture_has_a_bar_for_every_rate() -> None:
    picture = ElementTree.fromstring(report.picture(ENTRIES))
    bars = [each.get("class") for each in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars == [None, "ours", "floor"]
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "2.00 M rows/s" in texts
    with pytest.raises(ValueError, match="nothing to draw"):
        report.picture(ENTRIES[2:])


def test_writing_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DOCUMENT", tmp_path / "docs" / "page.md")
    monkeypatch.setattr(report, "PICTURE", tmp_path / "docs" / "picture.svg")
    report.write(ENTRIES, FULL)
    assert (tmp_path / "docs" / "page.md").read_text() == report.document(ENTRIES, FULL)
    assert (tmp_path / "docs" / "picture.svg").read_text() == report.picture(ENTRIES)


def test_contenders_take_turns_and_are_compared_round_by_round() -> None:
    turns = []
    times = {"a": iter([9.0, 2.0, 4.0, 1.0]), "b": iter([9.0, 1.0, 1.0, 1.0])}

    def run(key: str) -> float:
        turns.append(key)
        return next(times[key])

    def broken() -> float:
        raise SessionFailed("no jar")

    entries = list(
        contest(
            "s",
            [
                Contender(key="a", name="ours", run=lambda: run("a"), against=(("b", 0.6), ("e", 1.5))),
                Contender(key="b", name="ceiling", run=lambda: run("b"), is_yardstick=True),
                Contender(key="e", name="absent", run=broken),
            ],
            3,
            amount=100,
            unit="rows/s",
            megabytes=10,
        )
    )
    assert "".join(turns) == "abababab"  # the first round of each does not count
    assert entries[0] == Missing(
        section="s", name="(e) absent", reason="no jar", open_aims=("(a) ≥ 1.50 × e",)
    )
    assert entries[1] == Line(
        section="s",
        name="(a) ours",
        value=Spread(50, 25, 100),
        unit="rows/s",
        megabytes=5,
        ratios=(Ratio(spread=Spread(0.5, 0.25, 1), to="b", aim=0.6),),
    )
    assert Times((2.0, 4.0)).faster_than(Times((1.0, 1.0))) == Spread(0.375, 0.25, 0.5)
