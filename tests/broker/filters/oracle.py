"""SQLite's opinion of a condition and a message."""

import sqlite3
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

NAMES = ("a", "b", "c", "TAGS")


class Oracle:
    """Every property has three columns: its text, its number, and its truth value as 0 or 1."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("PRAGMA case_sensitive_like = ON")

    def value(self, condition: str, properties: Mapping[str, str], tag: str | None) -> bool | None:
        columns: dict[str, str | int | float | None] = {}
        for name in NAMES:
            text = tag if name == "TAGS" else properties.get(name)
            columns[f"text_{name}"] = text
            columns[f"number_{name}"] = _number(text)
            columns[f"truth_{name}"] = None if text is None else {"true": 1, "false": 0}.get(text.lower())
        names = ", ".join(f"? AS {name}" for name in columns)
        query = f"SELECT ({condition}) FROM (SELECT {names})"
        (value,) = self._connection.execute(query, tuple(columns.values())).fetchone()
        return None if value is None else bool(value)


def _number(text: str | None) -> int | float | None:
    if text is None or not set(text) <= set("0123456789+-.eE"):
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return int(value) if value == int(value) else float(value)
