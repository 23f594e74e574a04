"""A half message as one record of their log.

The record's timestamp is the time at which the message was prepared. It has no key and no headers. Its value,
numbers big-endian:

    offset  size  field
         0     1  version          2
         1     1  flags            1 the headers after a delay differ
         2     4  first check      seconds after which the producers are asked for the first time
         6     8  delay in ms      counted from when it is committed
        14     4  size of the group of producers
        18     4  size of the name
        22     4  size of the name of the queue for checks
        26     4  size of the headers after the delay
        30     …  group, name and queue in UTF-8, headers as in a batch
         …     …  what is published, as a schedule keeps it (see `schedule.entry`), to the end

Version 1, of older brokers, is a record for a partition. Its headers are those of the message, and its value:

         0     1  version          1
         1     1  flags            1 the message has a key
         2     4  partition
         6     4  first check
        10     4  size of the group of producers
        14     4  size of the topic's name
        18     4  size of the key
        22     …  group and topic in UTF-8, key
         …     …  the message's value, to the end
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from posthouse.broker.queues.names import topic_name
from posthouse.broker.schedule import entry
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.errors import DataDamaged, PosthouseError
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.records.raw import RawRecord

_VERSION = 2
_DIFFERS_WHEN_DUE = 1
_HEAD = Struct(">BBIQIIII")
_FIRST_VERSION = 1
_HAS_KEY = 1
_FIRST_HEAD = Struct(">BBIIIII")
_FINGERPRINT_BYTES = 16


class FullName(NamedTuple):
    """How producers call a half message that they decide without its id."""

    namespace: str
    group: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    group: str
    """The producers that are asked."""
    content: Scheduled
    """What is published when it is committed. The time at which it is due is that of the preparation."""
    first_check_s: int
    name: str = ""
    """Unique in the group; empty for a message that is decided by its id."""
    check_queue: str = ""
    """The queue whose consumers are asked; empty for the usual one of the group."""
    delay_ms: int = 0
    headers_when_due: bytes | None = None
    """The record's headers after the delay, if they differ."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that are written to: who prepares or decides needs permission."""
        content = self.content
        if content.partition is not None:
            return (content.exchange,)
        return topics_of_publish(content.namespace, content.exchange, (content.key, *content.more_keys))

    @property
    def full_name(self) -> FullName:
        return FullName(self.content.namespace, self.group, self.name)

    @property
    def prepared_ms(self) -> int:
        return self.content.due_ms

    @property
    def size(self) -> int:
        return len(self.content.value) + len(self.content.headers) + len(self.content.key)

    def record(self, id: int) -> RawRecord:
        """As consumers will see it, but for its offset and timestamp."""
        content = self.content
        key = content.key if content.has_key else None
        return RawRecord(id, self.prepared_ms, key, content.value, content.headers)

    def encode(self) -> bytes:
        """The value of its record."""
        group, name, queue = self.group.encode(), self.name.encode(), self.check_queue.encode()
        when_due = self.headers_when_due
        head = _HEAD.pack(
            _VERSION,
            0 if when_due is None else _DIFFERS_WHEN_DUE,
            self.first_check_s,
            self.delay_ms,
            len(group),
            len(name),
            len(queue),
            len(when_due or b""),
        )
        return b"".join((head, group, name, queue, when_due or b"", self.content.encode()))

    @property
    def fingerprint(self) -> bytes:
        """The same for messages that differ in nothing but the time of their preparation."""
        return blake2b(self.encode(), digest_size=_FINGERPRINT_BYTES).digest()


def topics_of_publish(namespace: str, exchange: str, keys: Iterable[bytes]) -> tuple[str, ...]:
    """The topic of the exchange; of the default one, which has none, those of the queues."""
    if exchange:
        return (topic_name(namespace, exchange),)
    return tuple(topic_name(namespace, key.decode(errors="replace")) for key in keys)


def decode(record: RawRecord) -> HalfMessage:
    data = record.value
    try:
        if data[0] == _FIRST_VERSION:
            return _decoded_first(record)
        if data[0] != _VERSION:
            raise DataDamaged(f"half message {record.offset} has the unknown version {data[0]}")
        return _decoded(record.timestamp, data)
    except DataDamaged:
        raise
    except (StructError, ValueError, IndexError, PosthouseError) as error:
        raise DataDamaged(f"half message {record.offset} cannot be read: {error}") from error


def _decoded(prepared_ms: int, data: bytes) -> HalfMessage:
    _, flags, first_check_s, delay_ms, *sizes = _HEAD.unpack_from(data)
    parts: list[bytes] = []
    at = _HEAD.size
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    group, name, queue, when_due = parts
    return HalfMessage(
        group=group.decode(),
        content=entry.decode(prepared_ms, data[at:]),
        first_check_s=first_check_s,
        name=name.decode(),
        check_queue=queue.decode(),
        delay_ms=delay_ms,
        headers_when_due=when_due if flags & _DIFFERS_WHEN_DUE else None,
    )


def _decoded_first(record: RawRecord) -> HalfMessage:
    data = record.value
    _, flags, partition, first_check_s, group_size, topic_size, key_size = _FIRST_HEAD.unpack_from(data)
    group_end = _FIRST_HEAD.size + group_size
    topic_end = group_end + topic_size
    key_end = topic_end + key_size
    return HalfMessage(
        group=data[_FIRST_HEAD.size : group_end].decode(),
        content=Scheduled(
            due_ms=record.timestamp,
            namespace=DEFAULT_NAMESPACE,
            exchange=data[group_end:topic_end].decode(),
            key=data[topic_end:key_end],
            has_key=bool(flags & _HAS_KEY),
            value=data[key_end:],
            headers=record.headers,
            partition=partition,
        ),
        first_check_s=first_check_s,
    )
