"""One transactional id: its producer, and the state of its transaction.

Stored under the id in `Space.TRANSACTIONS` whenever it changes, big-endian:

    version u8 (1) | producer id i64 | epoch i16 | previous producer id i64 | previous epoch i16 |
    timeout ms i32 | state u8 | started ms i64 | changed ms i64 |
    partitions u32, each: topic id 16 bytes, partition u32

Version 2 is that of a transactional id whose producer takes part in two-phase commits, or whose transaction
was prepared. It has behind the partitions:

    flags u8 (1: two-phase) | producer id i64 and epoch i16 of the prepared transaction, -1 if it is not |
    owner u16 length | owner in UTF-8

The offsets that it will commit are in `Space.TRANSACTION_OFFSETS`: key u16 length of the id | id | key of
the offset; the value is that of the offset.

The states, and what leads from one to the next:

    EMPTY      --add-->  ONGOING                    ONGOING    --commit-->  COMMITTED
    COMMITTED  --add-->  ONGOING                    ONGOING    --abort-->   ABORTED
    ABORTED    --add-->  ONGOING                    any        --init-->    EMPTY
    ONGOING    --keep--> PREPARED                   PREPARED   --commit-->  COMMITTED
    PREPARED   --keep--> PREPARED                   PREPARED   --abort-->   ABORTED

Markers, offsets and the new state are one commit, so a transaction ends everywhere or nowhere, and the broker
prepares nothing on its own account. PREPARED is for the owner of a two-phase commit, who decides. It is
stored as ONGOING, with the identity that its records have: the producer has a newer one by then.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from struct import error as StructError

from posthouse.broker.transactions.request_order import RequestOrder
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

MAX_EPOCH = 2**15 - 2
"""The last epoch that is assigned: the one above it is only for fencing."""
VERSION = 1
_TWO_PHASE_VERSION = 2
NO_TIMEOUT_MS = 2**31 - 1
"""What protocols are told of the timeout of a two-phase producer."""

_HEAD = Struct(">BqhqhiBqqI")
_PARTITION = Struct(">16sI")
_TAIL = Struct(">BqhH")
_TWO_PHASE = 1
_NOT_STARTED = -1


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    COMMITTED = 2
    ABORTED = 3
    PREPARED = 4
    """Only its owner may end it, and nothing is added to it."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    producer_id: int
    epoch: int

    @property
    def next_epoch(self) -> "ProducerIdentity":
        return ProducerIdentity(self.producer_id, self.epoch + 1)


NO_PRODUCER = ProducerIdentity(-1, -1)


@dataclass(slots=True)
class Work:
    """The contents of an open transaction."""

    started_ms: int
    partitions: set[PartitionId] = field(default_factory=set)
    stored: set[PartitionId] | None = None
    """Those of its partitions that are stored; None: the transaction is not stored at all."""
    admitted: set[PartitionId] = field(default_factory=set)
    """Those that have a stored admission: other brokers may append there. See `admissions`."""
    offsets: dict[bytes, Put] = field(default_factory=dict)
    """Offsets to commit with it, by their key."""
    groups: set[str] | None = field(default_factory=set)
    """The groups whose offsets it may commit; None: unknown, because it was open when the broker started."""
    producing: dict[object, RequestOrder] = field(default_factory=dict)
    """By the way of the requests: a client produces by as many brokers as lead the partitions."""
    committing: dict[str, RequestOrder] = field(default_factory=dict)
    """By the group: each may have a coordinator of its own, which relays the requests."""
    is_doubtful: bool = False
    """It may hold records of another transaction: it can only be aborted."""
    since: float | None = None
    """When it began by the monotonic clock; None: before the broker started."""
    prepared: ProducerIdentity | None = None
    """The identity that its records have, if it was prepared; None: that of the producer."""

    @property
    def is_stored(self) -> bool:
        return self.stored is not None and len(self.stored) == len(self.partitions)


@dataclass(slots=True, kw_only=True)
class Transaction:
    id: str
    producer: ProducerIdentity
    previous: ProducerIdentity = NO_PRODUCER
    """The producer's identity before its present epoch, to detect repeated requests."""
    timeout_ms: int
    changed_ms: int
    outcome: TransactionState = TransactionState.EMPTY
    """The outcome of the last transaction."""
    work: Work | None = None
    """The open transaction."""
    is_busy: bool = False
    """A transition is being made durable and must not be disturbed."""
    control: RequestOrder = field(default_factory=RequestOrder)
    has_aborted: bool = False
    """The client aborted a transaction and kept the epoch: batches may still be in flight."""
    may_be_shared: bool = False
    """Other brokers may append to its transactions. False until this broker has given out the epoch: it does
    not know what happened before."""
    is_two_phase: bool = False
    """Its transactions have no timeout: the producer takes part in two-phase commits."""
    owner: str = ""
    """The user whose producer takes part in two-phase commits, or has prepared its transaction."""

    @property
    def state(self) -> TransactionState:
        if self.work is None:
            return self.outcome
        return TransactionState.ONGOING if self.work.prepared is None else TransactionState.PREPARED

    @property
    def writer(self) -> ProducerIdentity:
        """The identity that the records of the open transaction have."""
        prepared = None if self.work is None else self.work.prepared
        return self.producer if prepared is None else prepared

    @property
    def shown_timeout_ms(self) -> int:
        return NO_TIMEOUT_MS if self.is_two_phase else self.timeout_ms

    def put(self) -> Put:
        return Put(Space.TRANSACTIONS, self.id.encode(), self._encode())

    def removal(self) -> Put:
        return Put(Space.TRANSACTIONS, self.id.encode(), None)

    def offset_put(self, key: bytes, value: bytes | None) -> Put:
        id = self.id.encode()
        return Put(Space.TRANSACTION_OFFSETS, len(id).to_bytes(2, "big") + id + key, value)

    def _encode(self) -> bytes:
        partitions = self.work.partitions if self.work else ()
        tail = self._tail()
        head = _HEAD.pack(
            _TWO_PHASE_VERSION if tail else VERSION,
            self.producer.producer_id,
            self.producer.epoch,
            self.previous.producer_id,
            self.previous.epoch,
            self.timeout_ms,
            self.outcome if self.work is None else TransactionState.ONGOING,
            self.work.started_ms if self.work else _NOT_STARTED,
            self.changed_ms,
            len(partitions),
        )
        return head + b"".join(_PARTITION.pack(id.topic, id.index) for id in partitions) + tail

    def _tail(self) -> bytes:
        prepared = None if self.work is None else self.work.prepared
        if not self.is_two_phase and prepared is None:
            return b""
        writer, owner = prepared or NO_PRODUCER, self.owner.encode(errors="surrogatepass")
        flags = _TWO_PHASE if self.is_two_phase else 0
        return _TAIL.pack(flags, writer.producer_id, writer.epoch, len(owner)) + owner


def decode_transaction(key: bytes, value: bytes) -> Transaction:
    try:
        return _decoded(key, value)
    except (StructError, ValueError) as error:
        raise DataDamaged(f"the transaction {key!r} cannot be read: {error}") from None


def _decoded(key: bytes, value: bytes) -> Transaction:
    version, *numbers, timeout, state, started, changed, count = _HEAD.unpack_from(value)
    if version not in (VERSION, _TWO_PHASE_VERSION):
        raise DataDamaged(f"the transaction {key!r} is stored in a form that is not known here")
    transaction = Transaction(
        id=key.decode(),
        producer=ProducerIdentity(*numbers[:2]),
        previous=ProducerIdentity(*numbers[2:]),
        timeout_ms=timeout,
        changed_ms=changed,
    )
    end = _HEAD.size + count * _PARTITION.size
    if state == TransactionState.ONGOING:
        pairs = _PARTITION.iter_unpack(value[_HEAD.size : end])
        partitions = {PartitionId(TopicId(topic), index) for topic, index in pairs}
        transaction.work = Work(started, partitions, set(partitions), groups=None)
    else:
        transaction.outcome = TransactionState(state)
    if version == _TWO_PHASE_VERSION:
        _read_tail(transaction, value, end)
    return transaction


def _read_tail(transaction: Transaction, value: bytes, position: int) -> None:
    flags, producer_id, epoch, length = _TAIL.unpack_from(value, position)
    owner = value[position + _TAIL.size :]
    if len(owner) != length:
        raise ValueError(f"its owner has {len(owner)} bytes instead of {length}")
    transaction.is_two_phase = bool(flags & _TWO_PHASE)
    transaction.owner = owner.decode(errors="surrogatepass")
    prepared = ProducerIdentity(producer_id, epoch)
    if transaction.work is not None and prepared != NO_PRODUCER:
        transaction.work.prepared = prepared


def split_offset_key(key: bytes) -> tuple[str, bytes]:
    """The transactional id and the offset's own key."""
    length = int.from_bytes(key[:2], "big")
    return key[2 : 2 + length].decode(), key[2 + length :]
