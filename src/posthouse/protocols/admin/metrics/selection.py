"""Which objects of a kind are shown by name, when there are more than there may be labels.

The first ones that are seen are shown, until they are gone; all others are summed under `OTHER`. An object
never changes sides: a counter of the sum that lost an object would look like a restart, and one that gained
an old object like a burst. Counters of summed objects that are gone stay in the sum for the same reason.
"""

from collections.abc import Hashable, Iterator
from operator import attrgetter
from typing import Final

OTHER: Final = "__other__"
"""The label of all objects that are not shown by name."""


class Selection:
    """Of one kind of objects. Each collection asks `shows` for every object, and then says `done`."""

    def __init__(self, limit: int, counters: tuple[str, ...] = ()) -> None:
        """`counters` names the attributes that are summed."""
        self._limit = limit
        self._counters = counters
        self._shown: dict[Hashable, object] = {}
        self._summed: dict[Hashable, object] = {}
        self._seen: set[Hashable] = set()
        self._retired = dict.fromkeys(counters, 0)
        self._has_retired = False

    def shows(self, key: Hashable, counted: object) -> bool:
        """Whether the object is shown by name. `counted` has its counters, and is kept."""
        self._seen.add(key)
        if key in self._shown:
            return True
        before = self._summed.get(key)
        if before is None:
            if len(self._shown) < self._limit:
                self._shown[key] = counted
                return True
        elif before is not counted:
            self._retire(before)  # another object has its name now
        self._summed[key] = counted
        return False

    def done(self) -> None:
        """All objects were seen: what was not is gone."""
        seen, self._seen = self._seen, set()
        for key in [key for key in self._shown if key not in seen]:
            del self._shown[key]
        for key in [key for key in self._summed if key not in seen]:
            self._retire(self._summed.pop(key))

    def _retire(self, counted: object) -> None:
        self._has_retired = True
        for name in self._counters:
            self._retired[name] += getattr(counted, name)

    @property
    def summed(self) -> int:
        """How many objects are not shown by name."""
        return len(self._summed)

    @property
    def has_other(self) -> bool:
        return bool(self._summed) or self._has_retired

    def totals(self) -> Iterator[tuple[str, int]]:
        """The counters of all objects that are not shown by name, one after the other: there may be many."""
        for name in self._counters:
            yield name, self._retired[name] + sum(map(attrgetter(name), self._summed.values()))
