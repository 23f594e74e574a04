"""Reads kio's dataclasses into plain trees, one per version of a message.

A tree describes the wire layout and nothing else, so versions with equal trees share their code.
"""

import dataclasses
import datetime
import importlib
import typing
import uuid
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal

from tools.kafka_codec.apis import ApiRange

Side = Literal["request", "response"]

# kio's names for Python values that are plain numbers on the wire.
_WIRE_KINDS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}

_ZERO_DEFAULTS: dict[str, object] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "float64": 0.0,
}


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` is a Kafka primitive or "struct"; `nullable` is about the array where there is one."""

    name: str
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    default: object
    struct: "Struct | None" = None


@dataclass(frozen=True, slots=True)
class Struct:
    name: str
    flexible: bool
    fields: tuple[Field, ...]

    @property
    def untagged(self) -> list[Field]:
        return [field for field in self.fields if field.tag is None]

    @property
    def tagged(self) -> list[Field]:
        tagged = [(field.tag, field) for field in self.fields if field.tag is not None]
        return [field for _, field in sorted(tagged, key=lambda pair: pair[0])]


def kio_type(api: ApiRange, version: int, side: Side) -> type[Any]:
    """The dataclass of a request or response in kio."""
    module = importlib.import_module(f"kio.schema.{api.package}.v{version}.{side}")
    for member in vars(module).values():
        if dataclasses.is_dataclass(member) and isinstance(member, type):
            entity: Any = member
            if member.__module__ == module.__name__ and entity.__type__.name == side:
                return member
    raise LookupError(f"kio has no {side} in {module.__name__}")


def load(api: ApiRange, version: int, side: Side) -> Struct:
    return _struct(kio_type(api, version, side))


def _struct(entity: Any) -> Struct:
    fields = tuple(read_field(field) for field in dataclasses.fields(entity))
    return Struct(entity.__name__, entity.__flexible__, fields)


def read_field(field: "dataclasses.Field[Any]") -> Field:
    element, array, optional = unwrap(field.type)
    kafka_type: str = field.metadata.get("kafka_type", "struct")
    kind = _WIRE_KINDS.get(kafka_type, kafka_type)
    # kio shows the zero UUID and the timestamp -1 as None; on the wire both are ordinary values.
    nullable = optional and (array or (kind != "uuid" and kafka_type != "datetime_i64"))
    struct = _struct(element) if dataclasses.is_dataclass(element) else None
    return Field(
        name=our_name(field.name, kafka_type),
        kind=kind,
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=None if array or struct else _default(field, kafka_type, kind, nullable),
        struct=struct,
    )


def our_name(kio_name: str, kafka_type: str) -> str:
    """Kafka's own name: kio drops the unit from durations and timestamps."""
    return f"{kio_name}_ms" if kafka_type.startswith(("timedelta", "datetime")) else kio_name


def unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """The element type, whether it is an array, and whether None is allowed."""
    optional = False
    if typing.get_origin(annotation) in (UnionType, typing.Union):
        (annotation,) = (arg for arg in typing.get_args(annotation) if arg is not NoneType)
        optional = True
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)[0], True, optional
    return annotation, False, optional


def _default(field: "dataclasses.Field[Any]", kafka_type: str, kind: str, nullable: bool) -> object:
    default = field.default
    if default is dataclasses.MISSING:
        return None if nullable else _ZERO_DEFAULTS.get(kind, 0)
    if kafka_type == "datetime_i64" and default is None:
        return -1
    return plain_value(default)


def plain_value(value: Any) -> Any:
    """kio's rich value as the plain one that goes on the wire."""
    match value:
        case None | bool() | float():
            return value
        case datetime.timedelta():
            return round(value / datetime.timedelta(milliseconds=1))
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case uuid.UUID():
            return value.bytes
        case int():
            return int(value)
        case str():
            return str(value)
        case bytes():
            return bytes(value)
    raise TypeError(f"no wire form for {value!r}")
