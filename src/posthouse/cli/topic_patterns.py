"""Topics by pattern: `orders-*` as a shell would write it, or a regular expression that begins with `^`."""

import re
from collections.abc import Iterable, Sequence

import typer

_WILDCARDS = {"*": ".*", "?": "."}


def is_pattern(text: str) -> bool:
    """A topic's name has none of these characters."""
    return text.startswith("^") or any(each in text for each in _WILDCARDS)


def expression(texts: Iterable[str]) -> str | None:
    """One regular expression that matches the whole name of a topic that any of the patterns means."""
    found = [_expression(text) for text in texts]
    if not found:
        return None
    try:
        return re.compile("|".join(f"(?:{each})" for each in found)).pattern
    except re.error as error:
        raise typer.BadParameter(f"it is no regular expression ({error})", param_hint="TOPIC") from None


def matching(expression: str, names: Sequence[str]) -> list[str]:
    compiled = re.compile(expression)
    return [name for name in names if compiled.fullmatch(name)]


def _expression(text: str) -> str:
    if not text.startswith("^"):
        return "".join(_WILDCARDS.get(each) or re.escape(each) for each in text)
    return text[1:-1] if text.endswith("$") else f"{text[1:]}.*"
