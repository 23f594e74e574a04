"""The names by which a record is found: its key, and what its headers say of keys and message ids.

key of the record           a key, as a whole
KEYS                        keys with blanks between them, each of them one
UNIQ_KEY, amqp.message-id   a message id
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from posthouse.records.header_section import decode_section
from posthouse.records.raw import NO_HEADERS

MOST_NAMES: Final = 1000
"""Of one record. It is not found by further ones: it could have hundreds of thousands."""
_MOST_HEADERS: Final = 10_000
"""Of one record that are looked at."""
KEYS: Final = b"KEYS"
"""The header with keys."""
IDS: Final = frozenset({b"UNIQ_KEY", b"amqp.message-id"})
"""The headers with a message id."""
_HEADERS: Final = (KEYS, *sorted(IDS))


class NameKind(IntEnum):
    KEY = 0
    MESSAGE_ID = 1


class Name(NamedTuple):
    """A tuple, because one is made for each name of each record."""

    kind: NameKind
    value: bytes


def names_of(key: bytes | None, section: bytes) -> list[Name]:
    """Each once. `section` are the headers as in a batch. Raises CorruptBatch for headers that cannot be
    read."""
    names = [] if key is None else [Name(NameKind.KEY, key)]
    if section == NO_HEADERS or not any(each in section for each in _HEADERS):
        return names
    return _with_headers(names, decode_section(section, _MOST_HEADERS))


def names_in(key: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> list[Name]:
    """The same of decoded headers."""
    names = [] if key is None else [Name(NameKind.KEY, key)]
    some = headers[:_MOST_HEADERS]
    return _with_headers(names, [(name.encode(errors="replace"), value) for name, value in some])


def _with_headers(names: list[Name], headers: Sequence[tuple[bytes, bytes | None]]) -> list[Name]:
    for name, value in headers:
        if value and name == KEYS:
            names += [Name(NameKind.KEY, word) for word in value.split(b" ", MOST_NAMES)[:MOST_NAMES] if word]
        elif value and name in IDS:
            names.append(Name(NameKind.MESSAGE_ID, value))
        if len(names) > MOST_NAMES:
            break
    return list(dict.fromkeys(names))[:MOST_NAMES]
