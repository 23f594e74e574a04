"""The records of a request, whatever form they were sent in."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.records.record import Headers

MOST_RECORDS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRecord:
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    """None if it follows from the key."""
    timestamp: int | None = None
    """None for the time of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRecords:
    records: Sequence[SentRecord]
    idempotency_key: str | None = None

    @property
    def fingerprint(self) -> bytes:
        """Differs for requests that ask for other records, and not by the form that they are sent in."""
        hashed = hashlib.sha256()
        for record in self.records:
            numbers = (record.partition, record.timestamp, len(record.headers))
            hashed.update(repr(numbers).encode())
            for part in (record.key, record.value):
                _add(hashed, part)
            for name, value in record.headers:
                _add(hashed, name.encode(errors="surrogatepass"))
                _add(hashed, value)
        return hashed.digest()


def _add(hashed: "hashlib._Hash", part: bytes | None) -> None:
    """With its size in front: no two lists of parts have the same bytes."""
    hashed.update(b"-" if part is None else b"%d:" % len(part))
    hashed.update(part or b"")
