"""What the page of `make bench-scale` says, and when an aim counts as reached."""

from bench.scale import report
from bench.scale.figures import Row, Verdict
from bench.scale.report import Chapter, Circumstances

CIRCUMSTANCES = Circumstances(command="make bench-scale", commit="abc", is_trial=False, is_complete=True)


def row(*rounds: float, most: float | None = None, least: float | None = None) -> Row:
    return Row(section="Section", name="memory", unit="MiB", rounds=rounds, most=most, least=least)


def test_the_middle_round_decides() -> None:
    assert row(1.0, 9.0, 2.0, most=3.0).aims() == [("< 3 MiB", Verdict.REACHED)]
    assert row(1.0, 9.0, 4.0, most=3.0).aims() == [("< 3 MiB", Verdict.MISSED)]
    assert row(3.0, most=3.0).aims() == [("< 3 MiB", Verdict.MISSED)]
    assert row(3.0, least=3.0).aims() == [("≥ 3 MiB", Verdict.REACHED)]
    assert row(2.9, least=3.0).aims() == [("≥ 3 MiB", Verdict.MISSED)]
    assert row(2.9).aims() == []


def test_what_must_be_exactly_so() -> None:
    lost = Row(section="Section", name="lost", unit="batches", rounds=(1.0,), exactly=0)
    assert lost.aims() == [("0 batches", Verdict.MISSED)]


def test_the_page() -> None:
    chapter = Chapter("How it was done.", [row(81.34, most=300.0), row(1.0, 2.0, 30.0, most=1.5)])
    page = report.document([chapter], CIRCUMSTANCES)
    assert "`make bench-scale` made this page at commit abc.\n" in page
    assert "1 of 2 aims are reached." in page
    assert "- missed: Section, memory: 2 (1 to 30) MiB; the aim was < 1.5 MiB" in page
    assert "## Section\n\nHow it was done.\n\n| | | aim |\n|---|---:|---:|\n| memory | 81.3 MiB |" in page
    assert "| memory | 81.3 MiB | < 300 MiB: reached |" in page


def test_a_note_stands_once_under_the_first_section_of_its_scenario() -> None:
    other = Row(section="Other", name="memory", unit="MiB", rounds=(1.0,))
    page = report.document([Chapter("A note.", [row(1.0), other])], CIRCUMSTANCES)
    assert page.count("A note.") == 1
    assert page.index("## Section") < page.index("A note.") < page.index("## Other")


def test_the_page_says_what_is_wrong_with_it() -> None:
    for wrong, words in (("is_trial", "as a trial"), ("is_complete", "did not come to its end")):
        told = {"is_trial": False, "is_complete": True} | {wrong: wrong == "is_trial"}
        page = report.document([], Circumstances(command="c", commit="abc", **told))
        assert words in page
