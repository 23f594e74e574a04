"""Rates of messages as people type them: `100/s`, `30/m`, `5/h`, or messages per second as a plain number."""

import re
from typing import Final

LOWEST: Final = 0.0001
"""Nearly nine messages a day."""
HIGHEST: Final = 1_000_000.0
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?: ?/ ?([smh]))?\Z")
FORM: Final = "a rate such as 100/s, 30/m or 5/h, or messages per second, from 0.0001 to 1000000"


def parse_rate(text: str) -> float:
    """Messages per second. Raises ValueError."""
    found = _RATE.match(text.strip())
    if found is not None:
        rate = float(found[1]) / _SECONDS[found[2] or "s"]
        if LOWEST <= rate <= HIGHEST:
            return rate
    raise ValueError(f"{text.strip()!r} is no rate; write {FORM}")


def shown_rate(rate: float) -> str:
    """In a unit that makes it a round number, if there is one."""
    for unit, seconds in _SECONDS.items():
        count = rate * seconds
        if abs(count - round(count)) < 1e-6 * max(count, 1) and round(count):
            return f"{round(count)}/{unit}"
    return f"{rate:.6g}/s"
