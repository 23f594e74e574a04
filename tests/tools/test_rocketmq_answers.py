"""How answers of two brokers are compared, and that every listed difference has a step."""

import pytest

from tools.conformance.expectations import known_failures
from tools.conformance.results import Outcome
from tools.conformance.rocketmq.answers import NAME, PROGRAM, compared, parsed


def printed(*lines: tuple[str, str, str, str, str]) -> str:
    return "".join("\t".join(line) + "\n" for line in lines)


SENT = ("send", "0", "{queueId=0}", "", "null")


def test_remarks_are_for_people() -> None:
    theirs = parsed(printed(SENT))
    own = parsed(printed((*SENT[:4], "another remark")))
    assert [each.outcome for each in compared(theirs, own, 1.0)] == [Outcome.PASSED]


@pytest.mark.parametrize(
    "changed", [("send", "1", "{queueId=0}", "", "null"), ("send", "0", "{}", "", "null")]
)
def test_another_answer_is_a_failure(changed: tuple[str, str, str, str, str]) -> None:
    [result] = compared(parsed(printed(SENT)), parsed(printed(changed)), 1.0)
    assert result.outcome is Outcome.FAILED
    assert "RocketMQ: 0 {queueId=0}; Posthouse: " in result.detail


def test_a_step_that_only_one_has_got_to_is_a_failure() -> None:
    for theirs, own in ((printed(SENT), ""), ("", printed(SENT))):
        [result] = compared(parsed(theirs), parsed(own), 1.0)
        assert result.outcome is Outcome.FAILED
        assert "no answer" in result.detail


def test_steps_have_names_of_their_own() -> None:
    with pytest.raises(AssertionError, match="two steps"):
        parsed(printed(SENT, SENT))


def test_differences_are_of_steps_that_there_are() -> None:
    source = PROGRAM.read_text()
    made = {
        f"{which} offset{of}"
        for which in ("greatest", "least")
        for of in (" of an unknown topic", " of a queue that is not there")
    }
    for step in known_failures(NAME):
        assert f'step("{step}"' in source or step in made, step
