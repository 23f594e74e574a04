"""A bucket: one log with the entries that are due in one period, and a mark of those already fired.

Storage has one entry per bucket in `Space.SCHEDULE`, numbers big-endian:

    key    log u32: the partition of the internal topic; in the schedule of a scope of namespaces other than
           that of the default namespace, the number of the scope u8 before it
    value  version u8 = 1 | bits of the period u8 | start of the period u64 | fired u64
           | mark: due u64, sequence 8 bytes, offset u64 | marked to u64

Entries are in the log in order of arrival and are fired in the order in which they are due. The mark tells
which: *an entry whose offset is below `marked to` has been fired if it does not sort behind the mark*. So any
number of entries needs one mark, and it changes in the same commit that appends the messages to their topics.
An entry that arrived behind `marked to` but sorts before the mark is *late*. Late entries are fired first, by
offset, and `marked to` follows them.

What was fired last of all buckets has an entry of its own beside theirs: see `recalls`.

A bucket is stored with its first entry. When it is empty, one commit trims its log to the end and removes it.
A bucket of a longer period is moved from the front: each step trims the entries that it has moved.
"""

from collections import deque
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from posthouse.broker.schedule import keys
from posthouse.broker.schedule.keys import PLACE_SIZE
from posthouse.broker.schedule.periods import Period
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_VERSION = 1
_KEY = Struct(">I")
_VALUE = Struct(">BBQQQ8sQQ")


@dataclass(frozen=True, slots=True)
class Mark:
    place: bytes = keys.pack(0, bytes(8), 0, 0, 0)[:PLACE_SIZE]
    """The key of the last fired entry, without its size."""
    to: int = 0
    """The mark covers entries below this offset."""

    @property
    def due_ms(self) -> int:
        return keys.due_of(self.place)


@dataclass(slots=True, eq=False)
class Bucket:
    period: Period
    log: int
    partition: PartitionId
    fired: int = 0
    """Number of fired entries in the log."""
    mark: Mark = field(default_factory=Mark)
    prefix: bytes = b""
    """Of its key in storage."""

    is_closed: bool = False
    """The bucket gets no more entries, neither new nor pending ones."""
    bound: bytes = b""
    """Every entry that was read and sorts before this key is in memory. `END`: all of them."""
    read_to: int = -1
    """The offset up to which the log has been read; -1: not yet."""
    floor: int = 0
    """Every entry below this offset is known to be fired."""
    loaded: int = 0
    """Number of its entries in the window."""
    late: deque[bytes] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.bound = keys.before(self.period.start_ms)

    @property
    def is_open(self) -> bool:
        return self.read_to >= 0

    @property
    def misses_something(self) -> bool:
        return self.bound != keys.END

    def put(self, mark: Mark, fired: int) -> Put:
        due_ms, sequence, _, offset, _ = keys.unpack(mark.place + bytes(4))
        period = self.period
        value = _VALUE.pack(_VERSION, period.bits, period.start_ms, fired, due_ms, sequence, offset, mark.to)
        return Put(Space.SCHEDULE, self.prefix + _KEY.pack(self.log), value)

    def removal(self) -> Put:
        return Put(Space.SCHEDULE, self.prefix + _KEY.pack(self.log), None)


def log_in(key: bytes) -> int:
    """The log of a stored bucket."""
    log: int = _KEY.unpack(key[-_KEY.size :])[0]
    return log


def prefix_in(key: bytes) -> bytes:
    return key[: -_KEY.size]


def decode(log: int, partition: PartitionId, value: bytes, prefix: bytes = b"") -> Bucket:
    try:
        version, bits, start_ms, fired, due_ms, sequence, offset, to = _VALUE.unpack(value)
    except StructError as error:
        raise DataDamaged(f"the state of log {log} of the schedule cannot be read: {error}") from error
    if version != _VERSION:
        raise DataDamaged(f"the state of log {log} of the schedule has the unknown version {version}")
    place = keys.pack(due_ms, sequence, log, offset, 0)[:PLACE_SIZE]
    return Bucket(Period(bits, start_ms), log, partition, fired, Mark(place, to), prefix)
