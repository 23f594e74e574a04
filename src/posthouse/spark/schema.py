"""The columns of the source: those of Spark's own Kafka source, by name and type."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from posthouse.spark.errors import WrongSchema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
_ON_REQUEST: dict[str, DataType] = {
    "headers": HEADERS,
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "sequence": IntegerType(),
}
"""Present only on request: headers by an option, all of them by a schema."""


def source_schema(*, include_headers: bool) -> StructType:
    fields = [StructField(name, kind) for name, kind in _COLUMNS.items()]
    if include_headers:
        fields.append(StructField("headers", HEADERS))
    return StructType(fields)


def check_schema(schema: StructType) -> None:
    """A user's schema may omit and reorder columns, nothing else."""
    known = _COLUMNS | _ON_REQUEST
    for field in schema:
        if field.name not in known:
            raise WrongSchema(
                f"the source has no column {field.name!r}; it has {', '.join(known)}",
            )
        if field.dataType != known[field.name]:
            raise WrongSchema(
                f"column {field.name!r} is {known[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}; change the schema and cast afterwards"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark compares every record batch with."""
    return to_arrow_schema(schema, timezone="UTC")
