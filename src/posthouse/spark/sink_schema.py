"""The columns that the sink accepts."""

from difflib import get_close_matches

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from posthouse.spark.errors import WrongSchema

_BYTES = "binary or string"
_COLUMNS: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "value": (_BYTES, (BinaryType, StringType, NullType)),
    "key": (_BYTES, (BinaryType, StringType, NullType)),
    "topic": ("string", (StringType,)),
    "partition": ("int", (IntegerType, NullType)),
    "timestamp": ("timestamp", (TimestampType, NullType)),
    "headers": ("array<struct<key: string, value: binary>>", (ArrayType, NullType)),
}
_OF_THE_SOURCE = ("offset", "timestampType")
"""Columns of the source, which have no meaning for a writer."""


def check_schema(schema: StructType, *, topic: str | None) -> None:
    """Raises WrongSchema for rows that could not be written; `topic` is that of the option."""
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name in _OF_THE_SOURCE:
            continue
        if field.name not in _COLUMNS:
            raise WrongSchema(_unknown(field.name))
        expected, kinds = _COLUMNS[field.name]
        if not isinstance(field.dataType, kinds) or not _are_headers(field.dataType):
            raise WrongSchema(
                f"the column {field.name!r} is {field.dataType.simpleString()}; cast it to {expected}"
                + _hint(field.dataType)
            )
    if "value" not in names:
        raise WrongSchema("the rows have no column 'value'; select one of type binary or string")
    if topic is None and "topic" not in names:
        raise WrongSchema("the rows have no topic; set .option('topic', …) or select a column topic")


def _are_headers(kind: DataType) -> bool:
    """Whether the type is headers, if it is a list."""
    if not isinstance(kind, ArrayType):
        return True
    pair = kind.elementType
    return (
        isinstance(pair, StructType)
        and pair.fieldNames() == ["key", "value"]
        and isinstance(pair["key"].dataType, StringType)
        and isinstance(pair["value"].dataType, BinaryType)
    )


def _hint(kind: DataType) -> str:
    return (
        ", or turn a row into text with to_json(struct(…))"
        if isinstance(kind, StructType)
        else (" with a time zone" if isinstance(kind, TimestampNTZType) else "")
    )


def _unknown(name: str) -> str:
    close = get_close_matches(name.lower(), _COLUMNS, n=1)
    hint = f"rename it to {close[0]!r}" if close else "drop it, or make it part of the column value"
    return f"the sink has no column {name!r}; {hint}"
