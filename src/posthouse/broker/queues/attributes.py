"""The attributes of a record that headers exchanges match."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from posthouse.model.errors import CorruptBatch
from posthouse.records.header_section import decode_section


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What routing a message again needs of it, besides its key."""

    headers: Mapping[str, object]
    priority: int = 0
    more_keys: tuple[bytes, ...] = ()
    deaths: tuple[Mapping[str, object], ...] = ()
    """Of a dead letter that an application published again with its headers: what they tell of its deaths, in
    the form that `dead_letters` has."""
    expiration: str | None = None
    """The time to live that the publisher gave it, as it was given."""


ReadAttributes = Callable[[bytes], Attributes | None]
"""A protocol's own reading of a record's headers; None where the record is not one of its messages."""


def no_attributes(headers: bytes) -> Attributes | None:
    """For brokers without a protocol that reads headers."""
    return None


def plain_attributes(headers: bytes) -> Attributes:
    """Every header that is text, as text."""
    try:
        found = decode_section(headers)
    except CorruptBatch:
        found = []
    return Attributes(headers={name.decode(errors="replace"): as_text(value) for name, value in found})


def as_text(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
