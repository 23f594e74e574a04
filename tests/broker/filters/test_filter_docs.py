"""docs/filters.md says what is so."""

import re
from pathlib import Path

import pytest

from posthouse.broker.filters import limits
from posthouse.broker.filters.sql import compile_sql
from posthouse.broker.filters.tokens import KEYWORDS
from posthouse.model.errors import InvalidFilter

PAGE = (Path(__file__).parents[3] / "docs" / "filters.md").read_text()
EXAMPLES = [
    line for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_conditions(example: str) -> None:
    assert not compile_sql(f"({example}) AND FALSE").matches({}, None)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 3


def test_the_error() -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_sql("price > 'high'")
    assert f"```\n{caught.value}\n```" in PAGE


def test_keywords() -> None:
    listed = re.search(r"cannot be names: (.*?)\.", PAGE, re.DOTALL)
    assert listed
    assert re.findall(r"`(\w+)`", listed[1]) == sorted(KEYWORDS)


@pytest.mark.parametrize("name", [name for name in dir(limits) if name.startswith("MAX_")])
def test_limits(name: str) -> None:
    table = PAGE[PAGE.index("## Limits") : PAGE.index("## Differences")]
    assert re.search(rf"\b{getattr(limits, name):,}\b", table), f"docs/filters.md names no {name}"
