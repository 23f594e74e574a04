"""Times as people type them: '90s', '1h30m', '1 hour ago', 'PT1H', or a date."""

import re
from datetime import datetime

_SECOND, _MINUTE, _HOUR, _DAY, _WEEK = 1000, 60_000, 3_600_000, 86_400_000, 604_800_000
_UNITS = (
    (1, "ms"),
    (_SECOND, "seconds second secs sec s"),
    (_MINUTE, "minutes minute mins min m"),
    (_HOUR, "hours hour h"),
    (_DAY, "days day d"),
    (_WEEK, "weeks week w"),
)
_MS = {name: ms for ms, names in _UNITS for name in names.split()}
_PART = re.compile(rf"(\d+) ?({'|'.join(_MS)})")
_WORDS = re.compile(rf"{_PART.pattern}(?: ?{_PART.pattern})*")
# The only form that Kafka's own tool accepts.
_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_ISO_UNITS = (_WEEK, _DAY, _HOUR, _MINUTE, _SECOND)


def parse_duration(text: str) -> int:
    """Milliseconds. Raises ValueError."""
    words = " ".join(text.split()).removesuffix(" ago")
    if _WORDS.fullmatch(words):
        return sum(int(count) * _MS[unit] for count, unit in _PART.findall(words))
    iso = _ISO.fullmatch(words)
    if iso and any(iso.groups()):
        return sum(int(count or 0) * unit for count, unit in zip(iso.groups(), _ISO_UNITS, strict=True))
    raise ValueError(f"{text.strip()!r} is no duration; write for example 90s, 1h30m or '1 hour ago'")


def parse_date(text: str) -> int:
    """In ms since the epoch; a date without a zone is local time. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text.strip()!r} is no date; write for example 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        ) from None
    return max(0, int(moment * 1000))


def parse_moment(text: str, now_ms: int) -> int:
    """The time in ms since the epoch: a duration ago, or a date. Raises ValueError."""
    try:
        return max(0, now_ms - parse_duration(text))
    except ValueError:
        pass
    try:
        return parse_date(text)
    except ValueError:
        raise ValueError(
            f"{text.strip()!r} is neither a duration such as 1h30m nor a date such as 2026-01-31T12:00"
        ) from None


def shown_duration(ms: float) -> str:
    """In its two largest units: 3d 4h, 12m 5s, 850ms."""
    left = int(ms)
    if left < _SECOND:
        return f"{left}ms"
    parts: list[tuple[int, str]] = []
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m"), (_SECOND, "s")):
        count, left = divmod(left, unit)
        if count or parts:
            parts.append((count, name))
    return " ".join(f"{count}{name}" for count, name in parts[:2] if count)
