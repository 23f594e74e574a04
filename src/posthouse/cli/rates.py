"""Rates as people type them: '100/s', '6000/m', or a number of messages a second."""

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")


def parse_rate(text: str) -> float:
    """Messages a second. Raises ValueError."""
    found = _RATE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text.strip()!r} is no rate; write for example 100/s or 6000/m")
    return float(found[1]) / _SECONDS[found[2] or "s"]
