"""What members of groups wanted that are gone, for a while: a consumer that is restarted, or replaced by
another of its kind, is to find what came meanwhile. Until then the others of the group do not pass it over.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from posthouse.broker.filters.filter import Filter
from posthouse.model.ids import GroupId

KEPT_SECONDS: Final = 300.0
"""Long enough for a rolling deploy to stop a process and start its successor; short enough that the messages
of a filter that is given up do not stay unread for long."""
_MOST: Final = 10_000
"""Filters of all groups."""
_MOST_OF_TOPIC: Final = 100
"""Of one group: each may have to be evaluated for each message."""

Expression = tuple[str, str]
"""Type and text."""


class DepartedFilters:
    """Owned by the event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[tuple[GroupId, str, Expression], float] = {}
        """The first to expire at the front."""
        self._filters: defaultdict[tuple[GroupId, str], dict[Expression, Filter]] = defaultdict(dict)
        """By group and topic, the oldest first."""
        self._changed: set[GroupId] = set()
        """That had filters which were forgotten."""

    def __len__(self) -> int:
        return len(self._until)

    def keep(self, group: GroupId, topic: str, expression: Expression, wanted: Filter) -> None:
        filters = self._filters[group, topic]
        if expression in filters:
            self._forget(group, topic, expression)
        elif len(filters) >= _MOST_OF_TOPIC:
            self._forget(group, topic, next(iter(filters)))
            self._changed.add(group)
        self._filters[group, topic][expression] = wanted
        self._until[group, topic, expression] = self._monotonic() + KEPT_SECONDS

    def of(self, group: GroupId, topic: str) -> Mapping[Expression, Filter]:
        return self._filters.get((group, topic), {})

    def forget_expired(self) -> set[GroupId]:
        """And the oldest, if there are too many. Returns the groups that want less than when this was last
        called."""
        now = self._monotonic()
        while self._until:
            place, until = next(iter(self._until.items()))
            if now < until and len(self._until) <= _MOST:
                break
            self._forget(*place)
            self._changed.add(place[0])
        changed, self._changed = self._changed, set()
        return changed

    def _forget(self, group: GroupId, topic: str, expression: Expression) -> None:
        del self._until[group, topic, expression]
        filters = self._filters[group, topic]
        del filters[expression]
        if not filters:
            del self._filters[group, topic]
