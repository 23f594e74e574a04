"""Log lines: one each, whatever clients call things."""

import json
import logging

import pytest

from posthouse.cli.logs import FloodFilter, JsonFormatter, TextFormatter


def record(message: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("posthouse", logging.WARNING, __file__, 1, message, values, None)


@pytest.mark.parametrize("name", ["a\nb", "a\rERROR", "a\x1b[2Jb", "a\u2028b", "a\u202eb", "a\x85b"])
@pytest.mark.parametrize("formatter", [TextFormatter(colour=False), JsonFormatter()])
def test_a_name_cannot_begin_a_line_or_move_the_cursor(name: str, formatter: logging.Formatter) -> None:
    line = formatter.format(record("queue %s is gone", name))
    assert line.isprintable()
    assert len(line.splitlines()) == 1


def test_the_text_of_an_error_cannot_move_the_cursor() -> None:
    failed = record("request failed")
    failed.exc_info = (ValueError, ValueError("no queue \x1b[2J\x9b31m"), None)
    first, *traceback = TextFormatter(colour=False).format(failed).split("\n")
    assert first.endswith("request failed") and traceback == [r"ValueError: no queue \x1b[2J\x9b31m"]


def test_letters_of_all_languages_stay_as_they_are() -> None:
    assert "Grüße, 世界 ✓" in TextFormatter(colour=False).format(record("queue %s", "Grüße, 世界 ✓"))
    assert json.loads(JsonFormatter().format(record("%s", "世界")))["message"] == "世界"


@pytest.mark.parametrize("formatter", [TextFormatter(colour=False), JsonFormatter()])
def test_long_ones_are_cut(formatter: logging.Formatter) -> None:
    line = formatter.format(record("group %s", "g" * 32_000))
    assert len(line) < 2200
    assert "(32006 characters)" in line


def flood(filter: FloodFilter, count: int, *, at: float, name: str = "posthouse.protocols.gate") -> list[str]:
    shown = []
    for number in range(count):
        line = logging.LogRecord(name, logging.WARNING, __file__, 1, "closing %s: 100 %%", (number,), None)
        line.created = at
        if filter.filter(line):
            shown.append(line.getMessage())
    return shown


def test_lines_that_anybody_can_cause_are_limited_and_counted() -> None:
    filter = FloodFilter()
    shown = flood(filter, 1500, at=1000.0)
    assert len(shown) == 100
    assert shown[0] == "closing 0: 100 %"
    assert shown[-1] == "closing 99: 100 % (more lines like this are left out for up to 10 s)"
    assert flood(filter, 5, at=1009.9) == []
    assert flood(filter, 2, at=1010.0) == [
        "closing 0: 100 % (1405 more lines like this were left out)",
        "closing 1: 100 %",
    ]


def test_what_the_broker_says_of_itself_is_not() -> None:
    assert (
        len(flood(FloodFilter(), 1500, at=1000.0, name="posthouse.storage.files.recovery.recovery")) == 1500
    )
