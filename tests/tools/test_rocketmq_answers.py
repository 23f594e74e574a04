"""How answers of two brokers are compared, and that the docs list the same differences as the run knows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.conformance.expectations import judge, known_failures
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.rocketmq import client_steps, upstream_tests
from tools.conformance.rocketmq.answers import GRPC, PROGRAM, REMOTING, compared, parsed
from tools.conformance.rocketmq.differences import Difference, known_differences

DOCS = Path(__file__).parents[2] / "docs" / "rocketmq.md"
HEADINGS = {REMOTING.name: "#### Remoting", GRPC.name: "#### gRPC"}
FAILING = {client_steps.NAME: "#### Stock clients", upstream_tests.NAME: "#### Upstream's own tests"}
GRPC_STEPS = PROGRAM.parent / "grpc_answers"

SENT = ("send", "0", "{queueId=0}", "", "null")
REFUSED = ("send", "1", "{queueId=0}", "", "null")


def printed(*lines: tuple[str, str, str, str, str]) -> str:
    return "".join("\t".join(line) + "\n" for line in lines)


def results(theirs: str, own: str, known: dict[str, Difference] | None = None) -> list[TestResult]:
    return compared(parsed(theirs), parsed(own), 1.0, known or {})


def test_remarks_are_for_people() -> None:
    [result] = results(printed(SENT), printed((*SENT[:4], "another remark")))
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("changed", [REFUSED, ("send", "0", "{}", "", "null")])
def test_another_answer_is_a_failure(changed: tuple[str, str, str, str, str]) -> None:
    [result] = results(printed(SENT), printed(changed))
    assert result.outcome is Outcome.FAILED
    assert "RocketMQ: 0 {queueId=0}; Posthouse: " in result.detail


def test_a_step_that_only_one_has_got_to_is_a_failure() -> None:
    for theirs, own in ((printed(SENT), ""), ("", printed(SENT))):
        [result] = results(theirs, own)
        assert result.outcome is Outcome.FAILED
        assert "no answer" in result.detail


def test_steps_have_names_of_their_own() -> None:
    with pytest.raises(AssertionError, match="two steps"):
        parsed(printed(SENT, SENT))


@pytest.mark.parametrize(("own", "name"), [("1", "send"), ("2", "send: not the codes that are listed")])
def test_a_known_difference_has_the_codes_that_are_listed(own: str, name: str) -> None:
    known = {"send": Difference(theirs="0", own=own, why="a reason")}
    [result] = results(printed(SENT), printed(REFUSED), known)
    assert (result.outcome, result.name) == (Outcome.FAILED, name)


@pytest.mark.parametrize("suite", HEADINGS)
def test_only_listed_differences_are_good(suite: str) -> None:
    for name, is_good in ((next(iter(known_failures(suite))), True), ("another step", False)):
        failed = TestResult(name=name, outcome=Outcome.FAILED, seconds=1.0)
        assert judge(SuiteRun(suite=suite, version="5.5.0", results=(failed,), excluded={})).good is is_good


@pytest.mark.parametrize("suite", HEADINGS)
def test_the_docs_list_the_known_differences(suite: str) -> None:
    known = known_differences(suite)
    assert list(documented(suite)) == [
        (name, each.theirs, each.own, each.why) for name, each in known.items()
    ]


@pytest.mark.parametrize(("suite", "heading"), FAILING.items())
def test_the_docs_list_the_known_failures(suite: str, heading: str) -> None:
    rows = dict(line.strip("| ").split(" | ") for line in section(heading) if line.startswith("| `"))
    assert rows == {f"`{name}`": why for name, why in known_failures(suite).items()}


def section(heading: str) -> list[str]:
    """Its lines."""
    _, _, text = DOCS.read_text().partition(f"\n{heading}\n")
    return text.partition("\n#")[0].splitlines()


def documented(suite: str) -> Iterator[tuple[str, str, str, str]]:
    """The rows of its table."""
    for line in section(HEADINGS[suite]):
        if line.startswith("| ") and not line.startswith("| request |"):
            name, theirs, own, why = line.strip("| ").split(" | ")
            yield name, theirs, own, why


@pytest.mark.parametrize("suite", HEADINGS)
def test_the_docs_count_the_answers(suite: str) -> None:
    """How many there are and how many of them are the same."""
    text = " ".join(section(HEADINGS[suite]))
    found = re.search(r"(\d+) requests, (\d+) of the answers are the same", text)
    assert found is not None
    assert int(found[1]) - int(found[2]) == len(known_differences(suite))


def test_differences_are_of_steps_that_there_are() -> None:
    source = PROGRAM.read_text()
    made = {
        f"{which} offset{of}"
        for which in ("greatest", "least")
        for of in (" of an unknown topic", " of a queue that is not there")
    }
    for step in known_differences(REMOTING.name):
        assert f'step("{step}"' in source or step in made, step
    source = "".join(each.read_text() for each in GRPC_STEPS.glob("*.py"))
    for step in known_differences(GRPC.name):
        tail = step.removeprefix("send ").removeprefix("route ")
        named = re.sub(r" [A-Z_]+$", " {name}", tail)  # steps for each of several names
        assert any(f'"{each}"' in source for each in (step, tail, named)), step


def test_a_step_is_to_be_done_with_both_brokers() -> None:
    found = client_steps.compared("client", ("a", "b"), {"crash", "a"}, {"crash", "b"})
    assert [(each.name, each.outcome, each.detail) for each in found] == [
        ("client crash", Outcome.PASSED, ""),
        ("client a, with Posthouse", Outcome.FAILED, "not done with Posthouse"),
        ("client b", Outcome.FAILED, "not done with RocketMQ"),
    ]
    [crash] = client_steps.compared("client", (), set(), set())
    assert (crash.outcome, crash.name) == (Outcome.FAILED, "client crash, with Posthouse")


def test_known_failures_of_clients_are_of_steps_that_there_are() -> None:
    made = {f"{name} {step}" for name, each in client_steps.PROGRAMS.items() for step in each.steps}
    assert known_failures(client_steps.NAME).keys() <= made


def test_results_of_upstreams_tests_are_told_from_what_libraries_print() -> None:
    printed = "12:00:00 |-INFO\ntestOne\tpassed\t1500\t\ntest log\ntestTwo\tfailed\t10\texpected: 3\n"
    assert list(upstream_tests.parsed(printed)) == [
        TestResult(name="testOne", outcome=Outcome.PASSED, seconds=1.5),
        TestResult(name="testTwo", outcome=Outcome.FAILED, seconds=0.01, detail="expected: 3"),
    ]
