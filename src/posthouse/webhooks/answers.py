"""What an endpoint answered, and what that means for the message.

2xx                                                   delivered
410                                                   gone: the webhook is paused
408, 409, 425, 429, 5xx, 3xx, no answer at all        failed: tried again
401, 403, 404, 405, 407, 421, 423, 424                failed, too: they tell of the endpoint, which can be
                                                      put right, not of the message
other 4xx                                             refused: the message is a dead letter at once
"""

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

_FAILED: Final = frozenset({401, 403, 404, 405, 407, 408, 409, 421, 423, 424, 425, 429})
_GONE: Final = 410
_LONGEST_RETRY_AFTER: Final = 24 * 3600.0
_SHOWN_BYTES: Final = 1024


class Verdict(Enum):
    DELIVERED = auto()
    FAILED = auto()
    """It is tried again."""
    REFUSED = auto()
    """It is not: the endpoint works, and does not want this message."""
    GONE = auto()
    """The endpoint wants no messages any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    location: str | None = None
    retry_after: str | None = None
    body: bytes = b""
    """The beginning."""

    @property
    def verdict(self) -> Verdict:
        if 200 <= self.status < 300:
            return Verdict.DELIVERED
        if self.status == _GONE:
            return Verdict.GONE
        if 400 <= self.status < 500 and self.status not in _FAILED:
            return Verdict.REFUSED
        return Verdict.FAILED

    @property
    def reason(self) -> str:
        """A sentence."""
        try:
            phrase = f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            phrase = str(self.status)
        if 300 <= self.status < 400:
            to = "" if self.location is None else f" to {self.location[:200]!r}"
            return f"the endpoint answered {phrase}{to}; redirects are not followed, change the URL"
        return f"the endpoint answered {phrase}"

    @property
    def shown_body(self) -> str:
        return self.body[:_SHOWN_BYTES].decode(errors="replace")

    def wait_seconds(self, now_ms: int) -> float:
        """What Retry-After asks for, at most a day; 0 if it asks for nothing, or cannot be read."""
        text = (self.retry_after or "").strip()
        if text.isascii() and text.isdigit():
            return min(float(text[:10]), _LONGEST_RETRY_AFTER)
        try:
            then = parsedate_to_datetime(text).timestamp()
        except (ValueError, OverflowError):
            return 0.0
        return min(max(then - now_ms / 1000, 0.0), _LONGEST_RETRY_AFTER)
