"""Follows definitions that another broker has changed on a shared storage."""

import logging
from collections.abc import Callable, Mapping, Sequence

from posthouse.broker.topics import Topics
from posthouse.model.topics import Topic
from posthouse.storage.definition_changes import DefinitionChange
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

Follow = Callable[[Mapping[bytes, bytes]], None]
"""Takes the whole new content of a space."""


class DefinitionFollower:
    """Owned by the event loop."""

    def __init__(
        self,
        topics: Topics,
        topics_changed: Callable[[Sequence[Topic]], None],
        spaces: Mapping[Space, Follow],
    ) -> None:
        """`topics_changed` is called after changes of topics, with those that were deleted."""
        self._topics = topics
        self._topics_changed = topics_changed
        self._spaces = spaces

    def changed(self, change: DefinitionChange) -> None:
        """Storage calls it; errors are logged, and the other definitions are followed all the same. A space
        skips the entries that it cannot read: see `stored_entries`."""
        if change.topics or change.deleted:
            try:
                self._topics.follow(change.topics, change.deleted)
                self._topics_changed(change.deleted)
            except Exception:
                log.exception("topics: changes that another broker has made cannot be followed")
        for space, state in change.state.items():
            follow = self._spaces.get(space)
            if follow is not None:
                try:
                    follow(state)
                except Exception:
                    log.exception(
                        "%s: changes that another broker has made cannot be followed", space.name.lower()
                    )
