"""What is wrong with the values of a request, in plain words: msgspec finds it, and says it in its own."""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import inspect

_FOUND: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<place>.*)`)?\Z", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<field>\w+)|\[(?P<item>[^\]]*)\]")
_TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}
_LIMITS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_UNITS: Final = {"str": ("character", "characters"), "array": ("entry", "entries")}


def in_words(error: msgspec.ValidationError, wanted: Any, noun: str) -> str:
    """`wanted` is the type that did not fit, and `noun` what its parts are called: parameter, or field."""
    found = _FOUND.match(str(error))
    assert found is not None
    what, place = found["what"], found["place"] or "$"
    name = place.removeprefix("$").removeprefix(".")
    of = repr(name).replace("'[...]'", "a value") if name else "it"
    expected = list(_types_at(inspect.type_info(wanted), place))
    if unknown := re.match(r"Object contains unknown field `(.*)`\Z", what, re.DOTALL):
        known = sorted(field.encode_name for field in _fields(expected))
        there_are = f"; there are {', '.join(known)}" if known else ""
        return f"there is no {noun} {unknown[1][:100]!r}{f' in {of}' if name else ''}{there_are}"
    if missing := re.match(r"Object missing required field `(\w+)`\Z", what):
        return f"the {noun} {missing[1]!r}{f' of {of}' if name else ''} is missing"
    if enum := re.match(r"Invalid enum value (.*)\Z", what, re.DOTALL):
        possible = ", ".join(map(str, _possible(expected)))
        return f"{of} cannot be {enum[1][:100]}; use one of {possible}"
    return f"{of} {_must(what.replace(' | null`, got', '`, got') if noun == 'parameter' else what)}"


def _must(what: str) -> str:
    if wrong_type := re.match(r"Expected `([^`]*)`, got `([^`]*)`\Z", what):
        return f"must be {_named(wrong_type[1])}, not {_named(wrong_type[2])}"
    if length := re.match(r"Expected `(str|array)` of length (\S+) (\d+)\Z", what):
        unit = _UNITS[length[1]][length[3] != "1"]
        return f"must have {_LIMITS[length[2]]} {length[3]} {unit}"
    if limit := re.match(r"Expected `(?:int|float)` (\S+) (\S+)\Z", what):
        return f"must be {_LIMITS[limit[1]]} {limit[2]}"
    if pattern := re.match(r"Expected `str` matching regex (.*)\Z", what, re.DOTALL):
        return f"must match {pattern[1]}"
    return f"is not right: {what}"


def _named(types: str) -> str:
    return " or ".join(_TYPES.get(each, each) for each in types.split(" | "))


def _types_at(type_: inspect.Type, place: str) -> Iterator[inspect.Type]:
    """All types that a value at this place may have."""
    types = list(_alternatives(type_))
    for step in _STEP.finditer(place):
        types = [
            inner for each in types for part in _inside(each, step["field"]) for inner in _alternatives(part)
        ]
    yield from types


def _alternatives(type_: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(type_, inspect.Metadata):
        yield from _alternatives(type_.type)
    elif isinstance(type_, inspect.UnionType):
        for each in type_.types:
            yield from _alternatives(each)
    else:
        yield type_


def _inside(type_: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    if isinstance(type_, inspect.StructType):
        yield from (each.type for each in type_.fields if each.encode_name == field)
    elif isinstance(type_, inspect.ListType):
        yield type_.item_type
    elif isinstance(type_, inspect.DictType):
        yield type_.value_type


def _fields(types: list[inspect.Type]) -> Iterator[inspect.Field]:
    for type_ in types:
        if isinstance(type_, inspect.StructType):
            yield from type_.fields


def _possible(types: list[inspect.Type]) -> Iterator[object]:
    for type_ in types:
        if isinstance(type_, inspect.LiteralType):
            yield from (each for each in type_.values if each is not None)
        elif isinstance(type_, inspect.EnumType):
            members: type[Enum] = type_.cls
            yield from (each.value for each in members)
