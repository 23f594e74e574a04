"""Times as people type them: '90s', '1h30m', '2d', or a date."""

import re
from datetime import datetime

_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def parse_moment(text: str, now_ms: int) -> int:
    """The time that `text` means, in ms since the epoch: so long ago, or that date. Raises ValueError."""
    text = text.strip()
    if _DURATION.fullmatch(text):
        return now_ms - sum(int(count) * _MS[unit] for count, unit in _PART.findall(text))
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a duration such as 1h30m nor a date such as 2026-01-31T12:00"
        ) from None
