"""Where a group is to go on reading, as an operator writes it:

earliest          the first record
latest            behind the last record
offset:N          this offset
time:ISO          the first record at or after a time; UTC if it names no zone
duration:PT1H     the first record at or after so long ago
shift:-N          from the committed offset, forwards or backwards

Every target is moved into the log where it lies outside.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

import msgspec

from posthouse.protocols.admin.problems import Problem

_INT64_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TargetKind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    TIME = auto()
    SHIFT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTarget:
    kind: TargetKind
    number: int = 0
    """Offset, distance, or milliseconds since 1970."""

    @classmethod
    def parse(cls, text: str, now_ms: int) -> "OffsetTarget":
        """Raises Problem."""
        name, _, value = text.partition(":")
        if text == "earliest":
            return cls(kind=TargetKind.EARLIEST)
        if text == "latest":
            return cls(kind=TargetKind.LATEST)
        if name == "offset":
            return cls(kind=TargetKind.OFFSET, number=_number(text, value, 0))
        if name == "shift":
            return cls(kind=TargetKind.SHIFT, number=_number(text, value, -_INT64_MAX))
        if name == "time":
            return cls(kind=TargetKind.TIME, number=_milliseconds(text, value))
        if name == "duration":
            return cls(kind=TargetKind.TIME, number=max(now_ms - _duration_ms(text, value), 0))
        raise Problem(
            400,
            f"{text[:100]!r} is not a place to go on from; use earliest, latest, offset:N, "
            "time:2026-01-31T12:00Z, duration:PT1H or shift:-N",
        )


def _number(text: str, value: str, least: int) -> int:
    try:
        number = int(value)
    except ValueError:
        raise Problem(400, f"{text[:100]!r} has no whole number behind the colon") from None
    if not least <= number <= _INT64_MAX:
        raise Problem(400, f"the number of {text[:100]!r} is not between {least} and {_INT64_MAX}")
    return number


def _milliseconds(text: str, value: str) -> int:
    try:
        time = datetime.fromisoformat(value)
        since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        raise Problem(400, f"{text[:100]!r} is no time; write for example time:2026-01-31T12:00Z") from None
    return max(since // timedelta(milliseconds=1), 0)


def _duration_ms(text: str, value: str) -> int:
    try:
        return msgspec.convert(value, timedelta) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise Problem(
            400, f"{text[:100]!r} is no duration; write for example duration:PT1H (an hour) or duration:P2D"
        ) from None
