"""A delayed message as a schedule keeps it: one record in one of its logs.

The record's timestamp is the time at which the message is due, its key the 8 bytes of its sequence (the order
of arrival, for messages due at the same time: see `sequences`), and it has no headers. Its
value, numbers big-endian:

    offset  size  field
         0     1  version        1
         1     1  flags          1 persistent, 2 expires, 4 for a partition, 8 without a key
         2     4  priority; with flag 4 the partition
         6     8  expires in ms  counted from when it is due; 0 without the flag
        14     4  size of the namespace
        18     4  size of the exchange's name
        22     4  size of the routing key
        26     4  size of the record headers
        30     4  size of the attributes
        34     4  number of further routing keys
        38     …  namespace and exchange in UTF-8, routing key, record headers as in a batch, attributes in
                  JSON (see `routing.table_values`; nothing if there are none)
         …     …  further routing keys, each behind its size in 4 bytes
         …     …  the message's value, to the end

With flag 4 it is a record for one partition of a topic, whose name is in place of the exchange's; the routing
key is the key of the record.

Invariant: moving an entry to another log changes neither its timestamp nor its key nor its value.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from posthouse.broker.routing.table_values import from_json, to_json
from posthouse.model.errors import DataDamaged, InvalidRecord, InvalidTimestamp

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, the latest due time."""

_VERSION = 1
_PERSISTENT = 1
_EXPIRES = 2
_FOR_PARTITION = 4
_WITHOUT_KEY = 8
_HEAD = Struct(">BBiqIIIIII")
_SIZE = Struct(">I")
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """Raises BadRequest on construction if it cannot be stored: later it would fail a whole batch."""

    due_ms: int
    namespace: str
    exchange: str
    key: bytes
    value: bytes
    headers: bytes = b"\x00"
    """The record's headers, encoded as in a batch."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """Application headers, for matching by header."""
    expires_in_ms: int | None = None
    priority: int = 0
    more_keys: tuple[bytes, ...] = ()
    persistent: bool = True
    partition: int | None = None
    """Of the topic that `exchange` names. None for a message that is routed when it is due."""
    has_key: bool = True
    """Whether the record for a partition has a key at all."""
    sequence: bytes | None = field(default=None, compare=False)
    """See `Schedule.new_sequence`; the schedule gives it one if it has none. Not part of its record's
    value."""
    stored_attributes: bytes | None = field(default=None, repr=False, compare=False)
    """The attributes in JSON; derived from them if not given."""

    def __post_init__(self) -> None:
        if not 0 <= self.due_ms <= LATEST_MS:
            raise InvalidTimestamp(
                f"a message cannot be due at {self.due_ms} ms; the last time is {LATEST_MS}"
            )
        if not 0 <= (self.expires_in_ms or 0) <= _MAX_INT64 or not 0 <= self.priority < 2**31:
            raise InvalidRecord(f"expiry in {self.expires_in_ms} ms, priority {self.priority}")
        if not 0 <= (self.partition or 0) < 2**31:
            raise InvalidRecord(f"there is no partition {self.partition}")
        if self.stored_attributes is None:
            stored = json.dumps(to_json(self.attributes)).encode() if self.attributes else b""
            object.__setattr__(self, "stored_attributes", stored)

    def encode(self) -> bytes:
        """The value of its record."""
        namespace = self.namespace.encode(errors="surrogatepass")
        exchange = self.exchange.encode(errors="surrogatepass")
        attributes = self.stored_attributes or b""
        expires = self.expires_in_ms is not None
        head = _HEAD.pack(
            _VERSION,
            _PERSISTENT * self.persistent
            | _EXPIRES * expires
            | _FOR_PARTITION * (self.partition is not None)
            | _WITHOUT_KEY * (not self.has_key),
            self.priority if self.partition is None else self.partition,
            self.expires_in_ms or 0,
            len(namespace),
            len(exchange),
            len(self.key),
            len(self.headers),
            len(attributes),
            len(self.more_keys),
        )
        further = [part for key in self.more_keys for part in (_SIZE.pack(len(key)), key)]
        return b"".join((head, namespace, exchange, self.key, self.headers, attributes, *further, self.value))


def decode(due_ms: int, data: bytes) -> Scheduled:
    try:
        return _decoded(due_ms, data)
    except (StructError, ValueError, IndexError) as error:
        raise DataDamaged(f"a delayed message cannot be read: {error}") from error


def _decoded(due_ms: int, data: bytes) -> Scheduled:
    if data[0] != _VERSION:
        raise DataDamaged(f"a delayed message of the unknown version {data[0]}")
    _, flags, priority, expires_in_ms, *sizes, further = _HEAD.unpack_from(data)
    parts: list[bytes] = []
    at = _HEAD.size
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    more_keys = []
    for _ in range(further):
        [size] = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        more_keys.append(data[at : at + size])
        at += size
    namespace, exchange, key, headers, attributes = parts
    return Scheduled(
        due_ms=due_ms,
        namespace=namespace.decode(errors="surrogatepass"),
        exchange=exchange.decode(errors="surrogatepass"),
        key=key,
        value=data[at:],
        headers=headers,
        attributes=_attributes(attributes) if attributes else {},
        expires_in_ms=expires_in_ms if flags & _EXPIRES else None,
        priority=0 if flags & _FOR_PARTITION else priority,
        more_keys=tuple(more_keys),
        persistent=bool(flags & _PERSISTENT),
        partition=priority if flags & _FOR_PARTITION else None,
        has_key=not flags & _WITHOUT_KEY,
        stored_attributes=attributes,
    )


def _attributes(stored: bytes) -> Mapping[str, object]:
    table = from_json(json.loads(stored))
    if not isinstance(table, dict):
        raise DataDamaged("the attributes of a delayed message are no table")
    return table
