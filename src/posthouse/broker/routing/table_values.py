"""The values of argument tables as JSON, with tags for types that JSON lacks.

    bytes      {"$bytes": base64}
    time       {"$time": seconds since 1970}, with "micros" where they are not 0
    decimal    {"$decimal": digits}
    float      a number with a point; {"$float": "nan" | "inf" | "-inf"}
    table      an object; {"$table": object} if a name in it begins with "$"

A time without a zone is taken to be in UTC, and comes back with it. Tuples come back as lists.
"""

import base64
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from posthouse.broker.routing.header_values import EPOCH, since_1970
from posthouse.model.errors import DataDamaged, InvalidDefinition

_DEEPEST = 64


def to_json(value: object, depth: int = 0) -> object:
    """Raises InvalidDefinition for a value that a table cannot hold."""
    if depth > _DEEPEST:
        raise InvalidDefinition(f"arguments are nested more than {_DEEPEST} deep")
    if value is None or isinstance(value, bool | str):
        return value
    # A protocol may have types of its own for numbers of some width, which no encoder knows.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        whole, fraction = divmod(since_1970(value), timedelta(seconds=1))
        return {"$time": whole, "micros": fraction.microseconds} if fraction else {"$time": whole}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, list | tuple):
        return [to_json(each, depth + 1) for each in value]
    if isinstance(value, Mapping):
        return _table_to_json(value, depth)
    raise InvalidDefinition(f"an argument cannot be of type {type(value).__name__}")


def _table_to_json(table: Mapping[object, object], depth: int) -> object:
    encoded = {}
    for name, value in table.items():
        if not isinstance(name, str):
            raise InvalidDefinition(f"{name!r} is not a name for an argument")
        encoded[name] = to_json(value, depth + 1)
    return {"$table": encoded} if any(name.startswith("$") for name in encoded) else encoded


def from_json(value: object) -> object:
    """Raises DataDamaged for a value that `to_json` does not produce."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    if any(name.startswith("$") for name in value):
        try:
            return _tagged(value)
        except (ValueError, ArithmeticError) as error:
            raise DataDamaged(f"a stored argument that cannot be read: {value!r}") from error
    return table_from_json(value)


def table_from_json(table: Mapping[str, object]) -> dict[str, object]:
    return {name: from_json(value) for name, value in table.items()}


def _tagged(value: Mapping[str, object]) -> object:
    """Raises ValueError or ArithmeticError."""
    match value:
        case {"$time": int(whole), "micros": int(micros)} if len(value) == 2:
            return EPOCH + timedelta(seconds=whole, microseconds=micros)
        case _ if len(value) > 1:
            raise ValueError("a tag stands alone")
        case {"$bytes": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"$time": int(whole)}:
            return EPOCH + timedelta(seconds=whole)
        case {"$decimal": str(digits)}:
            return Decimal(digits)
        case {"$float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"$table": dict(table)}:
            return table_from_json(table)
        case _:
            raise ValueError("unknown tag, or not what belongs to it")
