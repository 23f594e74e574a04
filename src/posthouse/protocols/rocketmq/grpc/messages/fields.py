"""Fields of messages, as they are declared.

    class Address(ProtoMessage):
        host: str = string(1)
        port: int = int32(2)

A plain field has its zero when it is absent, and a zero is not sent. An optional one and a sub-message are
None when they are absent. Members of a oneof are optional; one at most is not None.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any, TypeVar, cast

from msgspec import Struct


class WireType(IntEnum):
    """The low three bits of a tag. 3 and 4 are groups, which proto3 does not have."""

    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    FIXED32 = 5


class Kind(Enum):
    INT32 = auto()
    INT64 = auto()
    BOOLEAN = auto()
    ENUM = auto()
    FLOAT = auto()
    STRING = auto()
    BYTES = auto()
    MESSAGE = auto()
    STRING_MAP = auto()
    """A repeated message of a key (1) and a value (2)."""


class Presence(Enum):
    IMPLICIT = auto()
    OPTIONAL = auto()
    REPEATED = auto()


_ZEROS: dict[Kind, Any] = {
    Kind.INT32: 0,
    Kind.INT64: 0,
    Kind.BOOLEAN: False,
    Kind.FLOAT: 0.0,
    Kind.STRING: "",
    Kind.BYTES: b"",
    Kind.STRING_MAP: {},  # a message gets one of its own
}
_WIRE_TYPES = {
    Kind.INT32: WireType.VARINT,
    Kind.INT64: WireType.VARINT,
    Kind.BOOLEAN: WireType.VARINT,
    Kind.ENUM: WireType.VARINT,
    Kind.FLOAT: WireType.FIXED32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    number: int
    kind: Kind
    presence: Presence = Presence.IMPLICIT
    type: Any = None
    """The enum or the class of the message."""
    oneof: str | None = None

    @property
    def tag(self) -> int:
        """As this codec writes it: elements of repeated numbers are packed."""
        return self.number << 3 | (WireType.LENGTH if self.is_packed else self.wire_type)

    @property
    def element_tag(self) -> int:
        """Of one value of its own: what a peer may send of packed elements, too."""
        return self.number << 3 | self.wire_type

    @property
    def wire_type(self) -> WireType:
        return _WIRE_TYPES.get(self.kind, WireType.LENGTH)

    @property
    def is_packed(self) -> bool:
        return self.presence is Presence.REPEATED and self.wire_type is not WireType.LENGTH

    @property
    def is_single_message(self) -> bool:
        return self.kind is Kind.MESSAGE and self.presence is Presence.OPTIONAL

    @property
    def default(self) -> Any:
        if self.presence is Presence.OPTIONAL:
            return None
        if self.presence is Presence.REPEATED:
            return ()
        return self.type(0) if self.kind is Kind.ENUM else _ZEROS[self.kind]


# A declaration stands where a class has the default of an attribute, hence the types that these return.

_E = TypeVar("_E", bound=IntEnum)
_M = TypeVar("_M", bound=Struct)


def _declared(number: int, kind: Kind, presence: Presence = Presence.IMPLICIT, **details: Any) -> Any:
    return Field(number=number, kind=kind, presence=presence, **details)


def int32(number: int) -> int:
    return cast("int", _declared(number, Kind.INT32))


def int64(number: int) -> int:
    return cast("int", _declared(number, Kind.INT64))


def boolean(number: int) -> bool:
    return cast("bool", _declared(number, Kind.BOOLEAN))


def float32(number: int) -> float:
    return cast("float", _declared(number, Kind.FLOAT))


def string(number: int) -> str:
    return cast("str", _declared(number, Kind.STRING))


def binary(number: int) -> bytes:
    return cast("bytes", _declared(number, Kind.BYTES))


def enum(number: int, type: type[_E]) -> _E | int:
    return cast("_E", _declared(number, Kind.ENUM, type=type))


def optional_int32(number: int) -> int | None:
    return cast("None", _declared(number, Kind.INT32, Presence.OPTIONAL))


def optional_int64(number: int, *, oneof: str | None = None) -> int | None:
    return cast("None", _declared(number, Kind.INT64, Presence.OPTIONAL, oneof=oneof))


def optional_boolean(number: int) -> bool | None:
    return cast("None", _declared(number, Kind.BOOLEAN, Presence.OPTIONAL))


def optional_string(number: int) -> str | None:
    return cast("None", _declared(number, Kind.STRING, Presence.OPTIONAL))


def optional_enum(number: int, type: type[_E], *, oneof: str | None = None) -> _E | int | None:
    return cast("None", _declared(number, Kind.ENUM, Presence.OPTIONAL, type=type, oneof=oneof))


def submessage(number: int, type: type[_M], *, oneof: str | None = None) -> _M | None:
    return cast("None", _declared(number, Kind.MESSAGE, Presence.OPTIONAL, type=type, oneof=oneof))


def repeated(number: int, type: type[_M]) -> tuple[_M, ...]:
    return cast("tuple[_M, ...]", _declared(number, Kind.MESSAGE, Presence.REPEATED, type=type))


def repeated_string(number: int) -> tuple[str, ...]:
    return cast("tuple[str, ...]", _declared(number, Kind.STRING, Presence.REPEATED))


def repeated_enum(number: int, type: type[_E]) -> tuple[_E | int, ...]:
    return cast("tuple[_E, ...]", _declared(number, Kind.ENUM, Presence.REPEATED, type=type))


def string_map(number: int) -> Mapping[str, str]:
    return cast("Mapping[str, str]", _declared(number, Kind.STRING_MAP))
