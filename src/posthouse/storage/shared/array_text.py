"""Arrays of integers as parameters of statements."""

from collections.abc import Iterable


def array_text(items: Iterable[int]) -> str:
    """As PostgreSQL writes an array; several times as fast as the driver's own way."""
    return "{" + ",".join(map(str, items)) + "}"
