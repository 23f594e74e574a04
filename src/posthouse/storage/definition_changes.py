"""Changes of definitions by another broker that shares the storage."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from posthouse.model.topics import Topic
from posthouse.storage.spaces import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """`Storage.topics` has the changes already."""

    topics: Sequence[Topic] = ()
    """New or changed."""
    deleted: Sequence[Topic] = ()
    state: Mapping[Space, Mapping[bytes, bytes]] = field(default_factory=dict)
    """The whole new content of the spaces that changed: users, permissions, quotas, settings."""


DefinitionsChanged = Callable[[DefinitionChange], None]
"""It must not raise."""
