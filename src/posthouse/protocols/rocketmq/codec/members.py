"""Members of a JSON object, read as leniently as fastjson reads them into a Java class.

A missing member and null are the default; a number may be a string of digits; unknown members are ignored.
Anything else of the wrong type is BadBody.
"""

from collections.abc import Sequence
from typing import Final

from posthouse.protocols.rocketmq.codec.errors import BadBody
from posthouse.protocols.rocketmq.codec.lenient_json import Json

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_LONGEST: Final = 20
"""Characters of a 64-bit number."""


class Members:
    def __init__(self, value: Json, owner: str) -> None:
        if not isinstance(value, dict):
            raise BadBody(f"{owner} is not an object")
        self._values = value
        self._owner = owner

    def text(self, name: str, default: str | None = None) -> str:
        """Without a default the member must be there."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name)
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        return _number(value, self._wrong(name))

    def text_or_number(self, name: str, default: str) -> str | int:
        value = self._values.get(name)
        if value is None:
            return default
        return value if isinstance(value, str) else self.number(name)

    def truth(self, name: str, *, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value in (False, "false"):
            return False
        if value in (True, "true"):
            return True
        raise self._wrong(name)

    def choice(self, name: str, ordinals: Sequence[str], default: str) -> str:
        """A constant of a Java enum: Java writes names, the C++ client ordinals, and Go's case is its own."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value.upper()
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(ordinals):
            return ordinals[value]
        raise self._wrong(name)

    def object(self, name: str) -> "Members":
        return Members(self._values.get(name), name)

    def objects(self, name: str) -> list["Members"]:
        return [Members(each, f"a member of {name}") for each in self._list(name)]

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name)
        if not all(isinstance(each, str) for each in values):
            raise self._wrong(name)
        return tuple(str(each) for each in values)

    def items(self, name: str) -> list[tuple[str, Json]]:
        """Of an object, with keys as text."""
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, dict):
            raise self._wrong(name)
        return list(value.items())

    def is_list(self, name: str) -> bool:
        return isinstance(self._values.get(name), list)

    def _list(self, name: str) -> list[Json]:
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name)
        return value

    def _wrong(self, name: str) -> BadBody:
        return BadBody(f"{self._owner}: {name} is missing, or of another type")


def number(value: Json, owner: str) -> int:
    return _number(value, BadBody(f"{owner} is not a number"))


def _number(value: Json, error: BadBody) -> int:
    if isinstance(value, str) and len(value) <= _LONGEST and value.removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not _LEAST <= value <= _MOST:
        raise error
    return value
