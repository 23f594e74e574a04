"""Entries of a space of the state that another broker has changed."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from posthouse.model.excerpts import excerpt, printable
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""What reading raises: not UTF-8, not JSON, JSON of another shape, or a word of a newer version."""

_Read = TypeVar("_Read")


def readable_entries(
    space: Space, state: Mapping[bytes, bytes], read: Callable[[bytes, bytes], _Read]
) -> Iterator[_Read]:
    """What `read` makes of each key and value. Entries that cannot be read are skipped, with a log line that
    has the key and never the value, which may be a credential."""
    for key, value in state.items():
        try:
            entry = read(key, value)
        except _UNREADABLE as error:
            log.error(
                "%s: changes that another broker has made cannot be followed in the entry %s, which is "
                "skipped: %s",
                *(space.name.lower(), _named(key), type(error).__name__),
            )
        else:
            yield entry


def _named(key: bytes) -> str:
    return excerpt(printable(key.decode(errors="backslashreplace")))
