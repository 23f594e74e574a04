"""The names of half messages, in memory: of those that are undecided, and of those that were decided last.

A name is that of one message: to prepare the same message again is fine, another one is refused. So a
producer that was not told whether its message is stored may repeat itself, and so may one that decides.
"""

from collections import OrderedDict
from collections.abc import Callable
from sys import intern
from typing import Final, TypeAlias

from posthouse.broker.half_messages.decisions import BLOCK, KEPT
from posthouse.broker.half_messages.half_message import FullName, HalfMessage
from posthouse.model.errors import PosthouseError

MOST_DECIDED: Final = KEPT * BLOCK
"""Of so many messages it is known, too, what was decided."""

Stored: TypeAlias = Callable[[int | PosthouseError], None]


class Named:
    __slots__ = ("fingerprint", "id", "topics", "waiting")

    def __init__(self, message: HalfMessage, fingerprint: bytes, id: int | None) -> None:
        self.fingerprint = fingerprint
        """See `HalfMessage.fingerprint`."""
        self.topics = tuple(map(intern, message.topics))
        self.id = id
        """None as long as it is written."""
        self.waiting: list[Stored] = []
        """Those who have prepared it again meanwhile."""


class Names:
    def __init__(self) -> None:
        self._undecided: dict[FullName, Named] = {}
        self._decided: OrderedDict[FullName, Named] = OrderedDict()

    def find(self, name: FullName) -> Named | None:
        return self._undecided.get(name) or self._decided.get(name)

    def add(self, message: HalfMessage, fingerprint: bytes, id: int | None = None) -> None:
        self._undecided[message.full_name] = Named(message, fingerprint, id)

    def written(self, name: FullName, result: int | PosthouseError) -> None:
        """The message is durable, or could not be written: then its name is free again."""
        named = self._undecided[name]
        if isinstance(result, int):
            named.id = result
        else:
            del self._undecided[name]
        waiting, named.waiting = named.waiting, []
        for stored in waiting:
            stored(result)

    def decided(self, name: FullName) -> None:
        self._decided[name] = self._undecided.pop(name)
        if len(self._decided) > MOST_DECIDED:
            self._decided.popitem(last=False)
