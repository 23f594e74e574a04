"""Which objects of a kind are shown by name, when there are more than there may be labels.

The first ones that are seen are shown, until they are gone; all others are summed under `OTHER`. An object
never changes sides: a counter of the sum that lost an object would look like a restart, and one that gained
an old object like a burst. Counters of summed objects that are gone stay in the sum for the same reason.
"""

from collections.abc import Hashable
from operator import attrgetter
from typing import Final

from posthouse.protocols.admin.turns import Turns

OTHER: Final = "__other__"
"""The label of all objects that are not shown by name."""
_AT_ONCE: Final = 1000
"""Objects that are summed between two looks at the clock."""


class _Known:
    """One object."""

    __slots__ = ("counted", "is_shown", "seen_in")

    def __init__(self, counted: object, *, is_shown: bool) -> None:
        self.counted = counted
        self.is_shown = is_shown
        self.seen_in = 0
        """The number of the last collection that saw it."""


class Selection:
    """Of one kind of objects. Each collection asks `shows` once for every object, and then says `done`."""

    def __init__(self, limit: int, counters: tuple[str, ...] = ()) -> None:
        """`counters` names the attributes that are summed."""
        self._limit = limit
        self._counters = counters
        self._known: dict[Hashable, _Known] = {}
        self._shown = 0
        self._collection = 1
        self._seen = 0
        self._retired = dict.fromkeys(counters, 0)
        self._has_retired = False
        self._summed: list[object] | None = None
        """Counters of the objects that are not shown by name; None where they have changed since."""

    def shows(self, key: Hashable, counted: object) -> bool:
        """Whether the object is shown by name. `counted` has its counters, and is kept."""
        known = self._known.get(key)
        if known is None:
            is_shown = self._shown < self._limit
            self._shown += is_shown
            known = self._known[key] = _Known(counted, is_shown=is_shown)
            self._summed = None
        elif known.counted is not counted:  # another object has its name now
            self._retire(known)
            known.counted = counted
            self._summed = None
        known.seen_in = self._collection
        self._seen += 1
        return known.is_shown

    def done(self) -> None:
        """All objects were seen: what was not is gone."""
        if self._seen < len(self._known):  # rarely, and to find out which takes long
            for key, known in [each for each in self._known.items() if each[1].seen_in < self._collection]:
                del self._known[key]
                self._shown -= known.is_shown
                self._retire(known)
            self._summed = None
        self._collection += 1
        self._seen = 0

    def _retire(self, known: _Known) -> None:
        if not known.is_shown:
            self._has_retired = True
            for name in self._counters:
                self._retired[name] += getattr(known.counted, name)

    @property
    def summed(self) -> int:
        """How many objects are not shown by name."""
        return len(self._known) - self._shown

    @property
    def has_other(self) -> bool:
        return self.summed > 0 or self._has_retired

    async def totals(self, turns: Turns) -> dict[str, int]:
        """The counters of all objects that are not shown by name."""
        totals = dict(self._retired)
        if self._summed is None:
            self._summed = [known.counted for known in self._known.values() if not known.is_shown]
        summed = self._summed
        for first in range(0, len(summed), _AT_ONCE):
            for name in self._counters:
                totals[name] += sum(map(attrgetter(name), summed[first : first + _AT_ONCE]))
            await turns.next()
        return totals
