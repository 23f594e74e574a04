"""The envelope of a published message: everything but its key and body."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Protocols cache envelopes by the properties that arrived: most messages repeat earlier ones."""

    headers: bytes
    """The record's headers, encoded as in a batch: a varint count, then names and values."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """Application headers, for matching by header."""
    expires_in_ms: int | None = None
    priority: int = 0
    delay_ms: int = 0
    headers_when_due: bytes | None = None
    """The record's headers after the delay, if they differ."""
    more_keys: tuple[bytes, ...] = ()
    """Further routing keys."""
    persistent: bool = True
