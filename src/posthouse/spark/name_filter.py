"""Rows whose record has a key or message id, as searches of the broker understand it (`record_names`)."""

import pyarrow as pa
import pyarrow.compute as pc

from posthouse.records.batch import BatchHeader, Readable
from posthouse.records.compression import MAX_OUTPUT
from posthouse.records.record import body_in
from posthouse.records.record_names import IDS, KEYS, Name, NameKind, names_in
from posthouse.spark.columns import COLUMN_TYPES


class NameFilter:
    def __init__(self, name: Name, schema: pa.Schema) -> None:
        self._name = name
        self._names = schema.names
        self.schema = schema
        """The wanted columns, and those that are compared."""
        for column in ("key", "headers"):
            if column not in self.schema.names:
                self.schema = self.schema.append(pa.field(column, COLUMN_TYPES[column]))

    def select(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of `rows`, which have this schema, with the wanted columns."""
        return rows.filter(self._mask(rows)).select(self._names)

    def _mask(self, rows: pa.RecordBatch) -> pa.Array:
        by_header = self._by_header(rows.column("headers"), rows.column("key"))
        if self._name.kind is not NameKind.KEY:
            return by_header
        same = pc.fill_null(pc.equal(rows.column("key"), pa.scalar(self._name.value, pa.binary())), False)
        return pc.or_(same, by_header)

    def _by_header(self, headers: pa.ListArray, keys: pa.Array) -> pa.Array:
        """Rows that have the name in a header. Few rows are looked at one by one."""
        every = pc.list_flatten(headers)
        value = self._name.value
        if self._name.kind is NameKind.KEY:
            may_be = pc.equal(pc.struct_field(every, "key"), KEYS.decode())
            has_it = pc.match_substring(pc.struct_field(every, "value"), value)
        else:
            may_be = pc.is_in(
                pc.struct_field(every, "key"), pa.array([each.decode() for each in sorted(IDS)])
            )
            has_it = pc.equal(pc.struct_field(every, "value"), pa.scalar(value, pa.binary()))
        hits = pc.fill_null(pc.and_(may_be, has_it), False)
        numbers = pc.unique(pc.filter(pc.list_parent_indices(headers), hits)).to_pylist()
        found = [number for number in numbers if self._is_named(headers[number], keys[number])]
        return pc.is_in(pa.array(range(len(headers)), pa.int64()), pa.array(found, pa.int64()))

    def _is_named(self, headers: pa.ListScalar, key: pa.BinaryScalar) -> bool:
        pairs = [(each["key"], each["value"]) for each in headers.as_py()]
        return self._name in names_in(key.as_py(), pairs)


def may_have(batch: Readable, header: BatchHeader, name: Name) -> bool:
    """Whether a record of a whole batch may have the name: all names are in its bytes as they are."""
    return name.value in bytes(body_in(batch, header, max_output=MAX_OUTPUT))
