"""Writes the value types.

They are plain classes with slots rather than frozen dataclasses, because every partition of every Produce
and Fetch makes some. Measured with seven fields on Python 3.11: to define 0.01 ms against 0.8 ms, which
an import pays for each of some hundred types; to construct 0.5 µs against 1.3 µs; and decoders, which
use `object.__new__` and set the attributes themselves, take 0.16 µs.
"""

import json
import re

from tools.kafka_codec.merge import Member, Type
from tools.kafka_codec.schema import Struct
from tools.kafka_codec.source import Source

_PYTHON_TYPES = {"bool": "bool", "string": "str", "bytes": "bytes", "uuid": "bytes", "float64": "float"}


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def variable_names(struct: Struct) -> set[str]:
    """The local variables that hold the parts of a message."""
    nested = (variable_names(field.struct) for field in struct.fields if field.struct is not None)
    return {snake_case(struct.name)}.union(*nested)


def literal(value: object) -> str:
    """`repr`, but with the quotes that formatters agree on."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


def default_of(member: Member) -> str:
    """The value of a field that nobody set."""
    if member.array:
        return "None" if member.optional else "[]"
    if member.optional:
        return literal(member.default)
    if member.kind == "uuid":
        return "ZERO_UUID"
    if member.struct is not None:
        return f"{member.struct}()"
    return literal(member.default)


def annotation_of(member: Member) -> str:
    if member.kind == "records":
        return "Buffer | None"
    python = member.struct or _PYTHON_TYPES.get(member.kind, "int")
    if member.array:
        python = f"list[{python}]"
    return f"{python} | None" if member.optional else python


def write_class(source: Source, type_: Type) -> None:
    with source.block(f"class {type_.name}(Message):"):
        slots = "".join(f'"{member.name}", ' for member in type_.members).strip()
        if len(type_.members) != 1:
            slots = slots.rstrip(",")
        source.line(f"__slots__ = ({slots})")
        if type_.members:
            source.line()
            _write_init(source, type_)


def _write_init(source: Source, type_: Type) -> None:
    with source.block("def __init__("):
        source.line("self,")
        source.line("*,")
        for member in type_.members:
            source.line(f"{member.name}: {_parameter(member)},")
    with source.block(") -> None:"):
        for member in type_.members:
            name = member.name
            value = f"{default_of(member)} if {name} is None else {name}" if _fresh(member) else name
            source.line(f"self.{name} = {value}")


def _fresh(member: Member) -> bool:
    """Whether the default is mutable, so that every instance needs its own."""
    return not member.optional and (member.array or member.struct is not None)


def _parameter(member: Member) -> str:
    if _fresh(member):
        return f"{annotation_of(member)} | None = None"
    return f"{annotation_of(member)} = {default_of(member)}"
