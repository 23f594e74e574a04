"""The headers exchange: a binding's arguments are conditions on the headers of a message.

`x-match` tells whether `all` of them must hold or `any` one; the default is all. Arguments whose names begin
with `x-` are conditions only in `all-with-x` and `any-with-x`. An argument without a value requires the
header to be present, with any value.

Bindings are indexed by condition and looked up by the headers of a message. A binding that needs any
condition is listed under each of them. A binding that needs all conditions is listed under one of them, and
the others are checked when that one holds. It is the condition with the shortest list so far, so that a
condition that all bindings share does not put all of them into one list.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from posthouse.broker.routing.header_values import comparable
from posthouse.broker.routing.matcher import Bound, RoutingInputs, by_number
from posthouse.model.errors import InvalidDefinition

T = TypeVar("T")

Condition = tuple[str, Hashable]
"""A header's name, and its required value or `PRESENT`."""

MATCH = "x-match"
PRESENT = object()
MATCH_MODES = ("all", "any", "all-with-x", "any-with-x")


@dataclass(frozen=True, slots=True)
class _Wish:
    """The conditions of a binding."""

    any_one: bool
    conditions: tuple[Condition, ...]


class HeadersMatcher:
    reads: ClassVar[RoutingInputs] = RoutingInputs.HEADERS

    def __init__(self) -> None:
        self._wishes: dict[Bound, _Wish] = {}
        self._always: dict[Bound, None] = {}
        """Bindings without conditions: they always match."""
        self._any: dict[Condition, dict[Bound, None]] = {}
        self._all: dict[Condition, dict[Bound, tuple[Condition, ...]]] = {}
        """Bindings by one condition, with the other conditions that must hold."""
        self._filed_under: dict[Bound, Condition] = {}
        """The condition under which a binding is listed in `_all`."""
        self._names: dict[str, int] = {}
        """Number of bindings with a condition on a header; other headers are ignored."""

    def add(self, bound: Bound) -> None:
        wish = _wish(bound.binding.arguments)
        self._wishes[bound] = wish
        if wish.any_one:
            for condition in wish.conditions:
                self._any.setdefault(condition, {})[bound] = None
        elif wish.conditions:
            rarest = min(wish.conditions, key=self._commonness)
            others = tuple(each for each in wish.conditions if each is not rarest)
            self._all.setdefault(rarest, {})[bound] = others
            self._filed_under[bound] = rarest
        else:
            self._always[bound] = None
        for name, _ in wish.conditions:
            self._names[name] = self._names.get(name, 0) + 1

    def _commonness(self, condition: Condition) -> tuple[int, bool]:
        return len(self._all.get(condition, ())), condition[1] is PRESENT

    def remove(self, bound: Bound) -> None:
        wish = self._wishes.pop(bound)
        if wish.any_one:
            for condition in wish.conditions:
                _take_out(self._any, condition, bound)
        elif wish.conditions:
            _take_out(self._all, self._filed_under.pop(bound), bound)
        else:
            del self._always[bound]
        for name, _ in wish.conditions:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def match(self, key: bytes, headers: Mapping[str, object]) -> Collection[Bound]:
        names = self._names
        values = {name: comparable(value) for name, value in headers.items() if name in names}
        matched = self._always.copy()
        for name, value in values.items():
            for condition in ((name, value), (name, PRESENT)):
                if condition in self._any:
                    matched |= self._any[condition]
                if condition in self._all:
                    for bound, others in self._all[condition].items():
                        if _hold(others, values):
                            matched[bound] = None
        return sorted(matched, key=by_number)


def _wish(arguments: Mapping[str, object]) -> _Wish:
    mode = arguments.get(MATCH, "all")
    if mode not in MATCH_MODES:
        raise InvalidDefinition(f"{MATCH} is one of {', '.join(MATCH_MODES)}, not {mode!r}")
    with_x = str(mode).endswith("-with-x")
    conditions = tuple(
        (name, PRESENT if value is None else comparable(value))
        for name, value in arguments.items()
        if name != MATCH and (with_x or not name.startswith("x-"))
    )
    return _Wish(str(mode).startswith("any"), conditions)


def _hold(conditions: Iterable[Condition], values: Mapping[str, Hashable]) -> bool:
    for name, wanted in conditions:
        if name not in values or (wanted is not PRESENT and values[name] != wanted):
            return False
    return True


def _take_out(index: dict[Condition, dict[Bound, T]], condition: Condition, bound: Bound) -> None:
    filed = index[condition]
    del filed[bound]
    if not filed:
        del index[condition]
