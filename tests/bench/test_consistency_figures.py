"""What is made of figures of relays: ratios, the page, and the consumer that takes the times."""

import pytest

from bench.consistency.contenders import CONTENDERS, POLLER, POSTHOUSE
from bench.consistency.figures import FIGURES, Figure, Results
from bench.consistency.measuring import Plan
from bench.consistency.receiving import Overdue, Receiver
from bench.consistency.report import Circumstances, document

RATE = Figure(name="rows/s", title="rows that wait", unit="rows/s", is_less_better=False)
DELAY = Figure(name="p50", title="commit to consumer, p50", unit="ms")


def results(**rounds: list[float]) -> Results:
    """Of Posthouse and of the relay that is written by hand; all figures are the same."""
    made = Results()
    for name, values in ((POSTHOUSE, rounds["own"]), (POLLER, rounds["theirs"])):
        for value in values:
            figures = {each.name: value for each in FIGURES}
            made.rounds.setdefault(name, []).append({**figures, "repeated": 1.0, "out of order": 0.0})
    return made


def test_a_ratio_is_taken_within_each_round() -> None:
    found = results(own=[10, 40, 90], theirs=[10, 20, 30]).ratio(POSTHOUSE, POLLER, RATE)
    assert found is not None
    assert (found.middle, found.low, found.high) == (2, 1, 3)


def test_less_is_better() -> None:
    found = results(own=[10], theirs=[30]).ratio(POSTHOUSE, POLLER, DELAY)
    assert found is not None and found.middle == 3


@pytest.mark.parametrize(("own", "theirs"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_there_is_no_ratio(own: list[float], theirs: list[float]) -> None:
    assert results(own=own, theirs=theirs).ratio(POSTHOUSE, POLLER, RATE) is None


def test_the_page() -> None:
    found = results(own=[200.0], theirs=[100.0])
    found.missing["Debezium"] = "there is no Java"
    text = document(found, Circumstances(command="make bench-consistency", commit="abc", plan=Plan()))
    assert "`make bench-consistency` made this page at commit abc. It" in text
    assert f"| | {POSTHOUSE} | {POLLER} |" in text
    assert "| rows that wait, rows/s | 200 | 100 |" in text
    assert "| rows that wait | 2.00 |" in text
    assert "| commit to consumer, p50 | 0.50 |" in text
    assert "| messages repeated | 1 | 1 |" in text
    assert "- Debezium: there is no Java" in text
    for each in CONTENDERS:
        assert f"- {each.name}: {each.promise}." in text
    trial = document(found, Circumstances(command="x", commit="abc", plan=Plan(rounds=1)))
    assert "as a trial" in trial


def test_a_contender_without_its_package() -> None:
    missing = [each for each in CONTENDERS if each.package]
    assert missing
    for each in missing:
        assert each.obstacle is None or "not installed" in each.obstacle or "Java" in each.obstacle


def test_the_consumer_notes_what_comes_again_or_late() -> None:
    receiver = Receiver("127.0.0.1:1", "nowhere", 1)
    for key, number in (("a", 0), ("a", 2), ("a", 1), ("a", 1), ("b", 0)):
        receiver.note(key, number, 1.0)
    assert (receiver.repeated, receiver.out_of_order) == (1, 1)
    assert receiver.wait(4, 1) == 1.0
    with pytest.raises(Overdue, match="only 4 of 5 messages"):
        receiver.wait(5, 0.01)
