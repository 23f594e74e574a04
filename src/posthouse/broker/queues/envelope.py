"""What a published message brings along besides its key and its body."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """All of a message but key and body. Protocols cache them by what arrived: most messages repeat one."""

    headers: bytes
    """The record's headers, encoded as in a batch: a varint count, then names and values."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """Application headers, for matching by header."""
    expires_in_ms: int | None = None
    priority: int = 0
    delay_ms: int = 0
    headers_when_due: bytes | None = None
    """The record's headers when the delay is over, where they are others."""
    more_keys: tuple[bytes, ...] = ()
    """Further routing keys."""
    persistent: bool = True
