"""A bucket: one log with the entries that are due in one period, and how far they have been fired.

Storage has one entry per bucket in `Space.SCHEDULE`, numbers big-endian:

    key    log u32: the partition of the internal topic
    value  version u8 = 1 | bits of the period u8 | start of the period u64 | fired u64
           | mark: due u64, sequence 8 bytes, offset u64 | marked to u64

Entries lie in the log in the order of their coming and are fired in the order in which they are due. The mark
says which: *an entry whose offset is below `marked to` has been fired if it does not sort behind the mark*.
So any number of entries needs one mark, and it changes in the same commit that puts the messages into their
topics. An entry that came behind `marked to` but sorts before the mark is *late*. Late ones are fired first,
by offset, and `marked to` follows them.

A bucket is stored with its first entry. When nothing is left in it, one commit trims its log to the end and
removes it. A bucket of a longer period is moved from the front: each step trims what it has put elsewhere.
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
    """The key of the last entry that was fired, without its size."""
    to: int = 0
    """It speaks of entries below this offset."""

    @property
    def due_ms(self) -> int:
        return keys.due_of(self.place)


@dataclass(slots=True, eq=False)
class Bucket:
    period: Period
    log: int
    partition: PartitionId
    fired: int = 0
    """How many of the entries in the log have been."""
    mark: Mark = field(default_factory=Mark)

    is_closed: bool = False
    """Nothing can come in any more, neither new entries nor those that were on their way."""
    bound: bytes = b""
    """Everything of it that sorts before this, and has been read, is in memory. `END`: all of it."""
    read_to: int = -1
    """How far the log has been read; -1: not yet."""
    floor: int = 0
    """Below this offset everything has been fired, as far as is known."""
    loaded: int = 0
    """How many of its entries are in the window."""
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
        return Put(Space.SCHEDULE, _KEY.pack(self.log), value)

    def removal(self) -> Put:
        return Put(Space.SCHEDULE, _KEY.pack(self.log), None)


def log_in(key: bytes) -> int:
    """The log that a stored bucket belongs to."""
    log: int = _KEY.unpack(key)[0]
    return log


def decode(log: int, partition: PartitionId, value: bytes) -> Bucket:
    try:
        version, bits, start_ms, fired, due_ms, sequence, offset, to = _VALUE.unpack(value)
    except StructError as error:
        raise DataDamaged(f"the state of log {log} of the schedule cannot be read: {error}") from error
    if version != _VERSION:
        raise DataDamaged(f"the state of log {log} of the schedule has the unknown version {version}")
    place = keys.pack(due_ms, sequence, log, offset, 0)[:PLACE_SIZE]
    return Bucket(Period(bits, start_ms), log, partition, fired, Mark(place, to))
