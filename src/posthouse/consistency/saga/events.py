"""What happens to a saga: records of its topic of events, as JSON, with the id of the saga as key."""

from typing import Any, TypeAlias

import msgspec


class Start(msgspec.Struct, frozen=True, tag="start"):
    input: Any = None


class Advance(msgspec.Struct, frozen=True, tag="advance"):
    """What is next is to be called."""

    version: int


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    step: str
    result: Any = None


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """A step that waits has not been done, and will not be."""

    step: str
    reason: str


class Timeout(msgspec.Struct, frozen=True, tag="timeout"):
    version: int


Event: TypeAlias = Start | Advance | Reply | Failure | Timeout


def decode(value: bytes | None) -> Event | None:
    """None if it is no event."""
    try:
        event: Event = msgspec.json.decode(value or b"", type=Event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return event
