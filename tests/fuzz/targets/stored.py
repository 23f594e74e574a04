"""What the broker finds on its own disk. Checksums guard it; whatever passes them is still looked at."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct

from crc32c import crc32c

from posthouse.broker.groups import offsets
from posthouse.broker.groups.streams_store import decoded_topology, put_topology
from posthouse.broker.groups.streams_topology import InternalTopic, Subtopology, Topology
from posthouse.broker.half_messages import half_message
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.progress.chunk import CHUNK
from posthouse.broker.progress.progress import Progress
from posthouse.broker.progress.stash import KEY_SIZE
from posthouse.broker.queues.definition import OverflowPolicy, QueueDefinition, decode_definition
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.encoding import (
    decode_binding,
    decode_exchange,
    encode_binding,
    encode_exchange,
    exchange_key,
    namespace_of,
)
from posthouse.broker.schedule import bucket, entry
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction, decode_transaction
from posthouse.model.errors import BadRequest, DataDamaged
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.records.raw import RawRecord
from posthouse.records.spans import filler
from posthouse.storage.files.catalog.producer_rows import load, partition_key, rows
from posthouse.storage.files.journal import journal
from posthouse.storage.files.journal import reader as journal_reader
from posthouse.storage.files.segments import index
from posthouse.storage.files.segments.header import MAGIC as SEGMENT_MAGIC
from posthouse.storage.files.segments.header import Identity, start_of
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.files.system.disk import Disk
from posthouse.storage.operations import Put
from posthouse.storage.producers import ProducerTable
from tests.fuzz.target import Target

_PARTITION = PartitionId(TopicId(bytes(16)), 0)
_CHUNK_KEY = Struct(">16sHQ").pack(bytes(16), 0, 3)
_LANE_KEY = Struct(">16sH").pack(bytes(16), 0)
_SEGMENT_SIZE = 1 << 20
_SALT = bytes(journal.SALT_BYTES)


def _definition(decode: Callable[[bytes], object], encode: Callable[..., bytes]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with suppress(DataDamaged):
            decoded = decode(data)
            with suppress(BadRequest):  # JSON can hold more than a definition may
                encoded = encode(decoded)
                assert encode(decode(encoded)) == encoded

    return run


def _queues() -> Iterator[bytes]:
    yield QueueDefinition(name="q").encode()
    arguments = {"x-max-length": 5, "b": b"\xff", "list": [1, None, 2.5]}
    limited = QueueDefinition(name="é", max_length=5, overflow=OverflowPolicy.BLOCK, arguments=arguments)
    yield limited.encode()
    yield QueueDefinition(name="s", is_stream=True, max_age_ms=10, segment_bytes=5).encode()


def _exchanges() -> Iterator[bytes]:
    yield encode_exchange(ExchangeDefinition(name="e", kind=ExchangeKind.TOPIC))
    with_more = ExchangeDefinition(name="f", kind=ExchangeKind.HEADERS, alternate="e", arguments={"$x": 1})
    yield encode_exchange(with_more)


def _bindings() -> Iterator[bytes]:
    arguments = {"x-match": "any", "n": 5, "d": 0.5}
    yield encode_binding(Binding(source="e", destination="q", key=b"a.*", arguments=arguments))


def _topologies() -> Iterator[bytes]:
    count = Subtopology(
        id="1",
        sources=("t",),
        repartition_sources=(InternalTopic(name="r"),),
        repartition_sinks=("s",),
        changelogs=(InternalTopic(name="c", configs={"cleanup.policy": "compact"}),),
        copartitioned=(frozenset({"t", "r"}),),
    )
    yield _value(put_topology(GroupId("g"), Topology(epoch=0, subtopologies=(count,))))


def namespace(data: bytes) -> None:
    with suppress(DataDamaged):
        name = namespace_of(data)
        assert namespace_of(exchange_key(name, "x")) == name


def transaction(data: bytes) -> None:
    with suppress(DataDamaged):
        decoded = decode_transaction(b"id", data)
        again = decode_transaction(b"id", _value(decoded.put()))
        assert _in_order(_value(again.put())) == _in_order(_value(decoded.put()))


def _in_order(value: bytes) -> tuple[bytes, list[bytes]]:
    """The head, and the partitions, which are a set."""
    return value[:46], sorted(value[at : at + 20] for at in range(46, len(value), 20))


def _value(put: Put) -> bytes:
    assert put.value is not None
    return put.value


def _transactions() -> Iterator[bytes]:
    producer = ProducerIdentity(5, 1)
    idle = Transaction(id="id", producer=producer, previous=producer, timeout_ms=60_000, changed_ms=5)
    value = _value(idle.put())
    yield value
    ongoing = value[:25] + b"\x01" + value[26:-4] + b"\0\0\0\x02" + bytes(40)
    decode_transaction(b"id", ongoing)
    yield ongoing


def offset(data: bytes) -> None:
    with suppress(DataDamaged):
        decoded = offsets._decoded(data)
        assert offsets._decoded(offsets._encoded(decoded)) == decoded


def _offsets() -> Iterator[bytes]:
    committed = offsets.CommittedOffset(offset=5, leader_epoch=-1, metadata="é", committed_ms=7)
    yield offsets._encoded(committed)


def progress(data: bytes) -> None:
    """The first byte says which of the three forms it is."""
    if not data:
        return
    key = (_LANE_KEY, _CHUNK_KEY, bytes(KEY_SIZE))[data[0] % 3]
    lane = Progress(bytes(16), 0)
    with suppress(DataDamaged):
        lane.load(key, data[1:])
        lane.loaded(0)
        first = 3 * CHUNK
        is_settled = [lane.is_settled(position) for position in range(first, first + CHUNK, 97)]
        again = Progress(bytes(16), 0)
        lane.not_stored()
        for put in lane.puts():
            if put.value is not None:
                again.load(put.key, put.value)
        again.loaded(0)
        assert [again.is_settled(position) for position in range(first, first + CHUNK, 97)] == is_settled


def _progress() -> Iterator[bytes]:
    lane = Progress(bytes(16), 0)
    lane.settle_range(3 * CHUNK, 3 * CHUNK + 50)
    lane.settle(3 * CHUNK + 90)
    for put in lane.puts():
        if put.value is not None:
            yield bytes([{len(_LANE_KEY): 0, len(_CHUNK_KEY): 1}[len(put.key)]]) + put.value
    yield b"\x02\x01" + bytes(60)


def producers(data: bytes) -> None:
    """The first byte says which kind of row it is."""
    partition = PartitionId(TopicId(bytes(16)), 0)
    rest = (b"", bytes(8), b"a" + bytes(8))[data[0] % 3] if data else b""
    with suppress(DataDamaged):
        table = ProducerTable()
        load(table, partition_key(partition) + rest, data[1:])
        table.is_stored_whole = True  # so that all of it is stored
        stored = rows(partition, table.take_changes())
        again = ProducerTable()
        for key, value in stored.items():
            if value is not None:
                load(again, key, value)
        assert again.active() == table.active()


def _producers() -> Iterator[bytes]:
    producer = Struct(">qhqqB").pack(5, 0, 1_700_000_000_000, -1, 1) + Struct(">iiq").pack(0, 9, 100)
    yield bytes(9)
    yield b"\0\0\0\0\x01" + producer + bytes(4)
    yield b"\0\0\0\0\x01" + producer + b"\0\0\0\x02" + Struct(">qqqqqq").pack(5, 3, 9, 5, 20, 30)
    yield b"\x01" + producer + producer
    yield b"\x02" + Struct(">qq").pack(5, 3)


def scheduled(data: bytes) -> None:
    with suppress(DataDamaged, BadRequest):
        decoded = entry.decode(5, data)
        assert entry.decode(5, decoded.encode()) == decoded


def _scheduled() -> Iterator[bytes]:
    yield Scheduled(due_ms=5, namespace="/", exchange="e", key=b"k", value=b"v").encode()
    attributes = {"a": 1, "b": b"\xff"}
    with_more = Scheduled(
        due_ms=5,
        namespace="é",
        exchange="",
        key=b"",
        value=b"",
        attributes=attributes,
        expires_in_ms=100,
        priority=3,
        more_keys=(b"x", b""),
    )
    yield with_more.encode()


def half(data: bytes) -> None:
    with suppress(DataDamaged):
        decoded = half_message.decode(_half_record(data))
        assert half_message.decode(_half_record(decoded.encode())) == decoded
        assert decoded.topics


def _half_record(value: bytes) -> RawRecord:
    return RawRecord(7, 5, None, value, b"\x00")


def _halves() -> Iterator[bytes]:
    yield b"\x01\x01" + Struct(">IIIII").pack(2, 60, 1, 1, 2) + b"gtk1value"
    record = Scheduled(due_ms=5, namespace="/", exchange="t", key=b"k", value=b"v", partition=2)
    yield HalfMessage(group="g", content=record, first_check_s=6).encode()
    routed = Scheduled(due_ms=5, namespace="é", exchange="", key=b"k", value=b"v", more_keys=(b"x", b""))
    yield HalfMessage(
        group="g",
        name="n",
        content=routed,
        first_check_s=6,
        check_queue="q",
        delay_ms=7,
        headers_when_due=b"\x00",
    ).encode()


def schedule_bucket(data: bytes) -> None:
    with suppress(DataDamaged):
        decoded = bucket.decode(1, _PARTITION, data)
        again = bucket.decode(1, _PARTITION, _value(decoded.put(decoded.mark, decoded.fired)))
        assert (again.period, again.mark, again.fired) == (decoded.period, decoded.mark, decoded.fired)


def _buckets() -> Iterator[bytes]:
    yield Struct(">BBQQQ8sQQ").pack(1, 20, 1_700_000_000_000, 5, 1_700_000_000_500, bytes(8), 9, 12)


def sparse_index(data: bytes) -> None:
    """Also with a checksum that is right: the first block is given one."""
    index.decode_blocks(data, 4096, _SEGMENT_SIZE, 0)
    if len(data) >= 28:
        block = bytearray(data)
        block[:4] = index.MAGIC
        size = 28 + 24 * int.from_bytes(block[8:12])
        block[4:8] = crc32c(memoryview(block)[8:size]).to_bytes(4, "big")
        found, _ = index.decode_blocks(bytes(block), 4096, _SEGMENT_SIZE, 0)
        assert len(found.entries()) <= len(data) // 24
        found.position_of(5)
        found.position_of_time(5)
        found.truncate(100)


def _indexes() -> Iterator[bytes]:
    first = index.encode_block([(0, 0, index.NO_TIME), (50, 4096, 1000)], 8192, 2000, 0)
    yield first
    yield first + index.encode_block([(90, 8192, 2000)], 12_000, 2500, 0)


def segment_header(data: bytes) -> None:
    """As it is, and with the checksum that it should have."""
    path = f"topics/{bytes(16).hex()}/0-{0:020d}.log"
    start_of(data).misplaced(path, has_header=True)
    if len(data) >= HEADER_BYTES:
        fixed = bytearray(data[:HEADER_BYTES])
        fixed[4:8] = crc32c(memoryview(fixed)[8:]).to_bytes(4, "big")
        found = start_of(fixed).misplaced(path)
        assert found is None or isinstance(found, str) or start_of(found.header()).identity == found


def _headers() -> Iterator[bytes]:
    yield Identity(PartitionId(TopicId(bytes(16)), 0), 0, 0).header()
    yield Identity(PartitionId(TopicId(b"t" * 16), 7), 4711, 3).header()
    yield filler(0, 10)[0]


class _OneFile:
    """A disk with one journal file, as far as reading needs one."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def names(self, path: str) -> list[str]:
        return [f"{1:020d}-{_SALT.hex()}.wal"]

    def open(self, path: str, *, create: bool = False) -> int:
        return 1

    def close(self, handle: int) -> None:
        pass

    def size(self, path: str) -> int:
        return len(self._data)

    def read(self, handle: int, size: int, position: int) -> bytes:
        return self._data[position : position + size]


def journal_file(data: bytes) -> None:
    """As a file, and as the operations of a frame whose checksums are right."""
    _read(data)
    with suppress(DataDamaged):
        frames = _read(_frame(1, data) + data)
        assert frames == 1 or b"PHFR" in data


def _read(data: bytes) -> int:
    disk: Disk = _OneFile(data)  # type: ignore[assignment]
    return sum(
        isinstance(each, journal_reader.Frame) for each in journal_reader.read_journal(disk, "journal", None)
    )


def _frame(number: int, operations: bytes) -> bytes:
    under_crc = Struct(">QI").pack(number, len(operations))
    salted = crc32c(_SALT)
    under_crc += crc32c(under_crc, salted).to_bytes(4, "big") + operations
    return journal.FRAME_MAGIC + crc32c(under_crc, salted).to_bytes(4, "big") + under_crc


def _journals() -> Iterator[bytes]:
    append = journal.OPERATION.pack(journal.APPEND, bytes(16), 0, 0, 0, 5, 6, 10) + b"0123456789"
    trim = journal.OPERATION.pack(journal.TRIM, bytes(16), 0, 0, 0, 5, 0, 0)
    put = journal.PUT_OPERATION.pack(journal.PUT, 1, 3, 5) + b"keyvalue"
    removal = journal.PUT_OPERATION.pack(journal.PUT, 1, 3, journal.REMOVED) + b"key"
    yield append + trim + put + removal
    yield _frame(1, append + put) + _frame(2, trim) + bytes(50) + _frame(3, removal)


TARGETS = (
    Target(
        name="streams-topology",
        run=_definition(decoded_topology, lambda known: _value(put_topology(GroupId("g"), known))),
        seeds=_topologies,
    ),
    Target(
        name="queue-definition", run=_definition(decode_definition, QueueDefinition.encode), seeds=_queues
    ),
    Target(name="exchange-definition", run=_definition(decode_exchange, encode_exchange), seeds=_exchanges),
    Target(name="binding", run=_definition(decode_binding, encode_binding), seeds=_bindings),
    Target(name="namespace-key", run=namespace, seeds=lambda: [exchange_key("/", "e")], longest=200),
    Target(name="transaction", run=transaction, seeds=_transactions, longest=500),
    Target(name="committed-offset", run=offset, seeds=_offsets, longest=200),
    Target(name="queue-progress", run=progress, seeds=_progress),
    Target(name="producer-table", run=producers, seeds=_producers),
    Target(name="scheduled-message", run=scheduled, seeds=_scheduled),
    Target(name="half-message", run=half, seeds=_halves),
    Target(name="schedule-bucket", run=schedule_bucket, seeds=_buckets, longest=200),
    Target(
        name="segment-header", run=segment_header, seeds=_headers, dictionary=(SEGMENT_MAGIC,), longest=200
    ),
    Target(name="segment-index", run=sparse_index, seeds=_indexes, dictionary=(index.MAGIC,)),
    Target(name="journal", run=journal_file, seeds=_journals, dictionary=(journal.FRAME_MAGIC,)),
)
