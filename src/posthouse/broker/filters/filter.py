"""What every filter does."""

from collections.abc import Mapping
from typing import Final, Protocol


class Filter(Protocol):
    """Compiled once, asked for every message. Immutable: threads and subscriptions may share it."""

    def matches(self, properties: Mapping[str, str], tag: str | None) -> bool:
        """Whether the subscription takes a message with these properties and this tag. Never raises."""
        ...


class _Everything:
    __slots__ = ()

    def matches(self, properties: Mapping[str, str], tag: str | None) -> bool:
        return True


EVERYTHING: Final[Filter] = _Everything()
