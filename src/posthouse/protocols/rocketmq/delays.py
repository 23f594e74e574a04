"""When a message is to be delivered: by a delay level, after a time, or at a time."""

from collections.abc import Mapping
from typing import Final

from posthouse.model.errors import InvalidTimestamp
from posthouse.protocols.rocketmq.codec.codes import (
    DELAY_LEVEL,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)

_S, _M, _H = 1000, 60_000, 3_600_000
LEVELS: Final = (
    *(seconds * _S for seconds in (1, 5, 10, 30)),
    *(minutes * _M for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * _H for hours in (1, 2)),
)
"""In milliseconds, from level 1 on."""
FIRST_RETRY_LEVEL: Final = 3
MOST_RETRIES: Final = 16
"""Unless the consumer says otherwise."""
PROPERTIES: Final = frozenset({DELAY_LEVEL, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC})
_DIGITS: Final = 19


def level_ms(level: int) -> int:
    """The longest for all higher levels, 0 for none."""
    return LEVELS[min(level, len(LEVELS)) - 1] if level > 0 else 0


def retry_level(level: int, reconsumed: int) -> int:
    """Of a message that was consumed in vain `reconsumed` times before; `level` is what the consumer asks
    for, 0 if it leaves that to the broker."""
    return level if level > 0 else FIRST_RETRY_LEVEL + reconsumed


def due_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """None for a message that is delivered at once. A level goes before a time, as upstream: a consumer that
    sends a message again asks for one, beside what was asked before. Raises InvalidTimestamp."""
    level = properties.get(DELAY_LEVEL)
    if level is not None and (number := _number(DELAY_LEVEL, level)):
        due = now_ms + level_ms(number)
    elif (text := properties.get(TIMER_DELIVER_MS)) is not None:
        due = _number(TIMER_DELIVER_MS, text)
    elif (text := properties.get(TIMER_DELAY_MS)) is not None:
        due = now_ms + _number(TIMER_DELAY_MS, text)
    elif (text := properties.get(TIMER_DELAY_SEC)) is not None:
        due = now_ms + 1000 * _number(TIMER_DELAY_SEC, text)
    else:
        return None
    return due if due > now_ms else None


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise InvalidTimestamp(
            f"{name} is {text[:50]!r}, which is no number of milliseconds, seconds or a level"
        )
    return int(text)
