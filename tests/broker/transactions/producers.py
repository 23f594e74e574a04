"""A broker over a storage that can lose its voice, and transactional producers that behave as clients do."""

import asyncio
import itertools
from collections.abc import Coroutine, Sequence

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.topics import NewTopic
from posthouse.broker.transactions.producer_starts import NewProducer
from posthouse.broker.transactions.requests import TransactionalRequest, TransactionalWriter
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.model.clock import ManualClock
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.request_origins import ConnectionIdentity, CorrelatedOrigin
from posthouse.records.batch import iter_headers
from posthouse.records.builder import BatchBuilder
from posthouse.records.control import is_commit
from posthouse.records.record import iter_records
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome

TIMEOUT_MS = 60_000


class Ledger(MemoryStorage):
    """Keeps state for the next broker that uses it, and a list of the commits.

    `dead` loses every commit, `mute` keeps it but does not say so until it may `speak`: a broker that is
    dropped then has crashed before or after it.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.commits: list[list[Operation]] = []
        self.failure: PosthouseError | None = None
        self.dead = False
        self.mute = False
        self.withheld = asyncio.Event()
        """Set when a commit came that is not answered."""
        self._unsaid: list[tuple[asyncio.Future[list[Outcome]], list[Outcome]]] = []

    def commit(self, operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        never: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            never.set_exception(self.failure)
            return never
        if self.dead:
            self.withheld.set()
            return never
        done = super().commit(operations)
        if done.exception() is not None:
            return done
        self.commits.append(list(operations))
        if not self.mute:
            return done
        self._unsaid.append((never, done.result()))
        self.withheld.set()
        return never

    def speak(self) -> None:
        self.mute = False
        for future, outcomes in self._unsaid:
            if not future.done():
                future.set_result(outcomes)

    async def close(self) -> None:
        """The next broker uses it."""


class Bench:
    """One broker after another on the same storage."""

    def __init__(self, storage: Storage | None = None, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.ledger = Ledger(self.clock)
        self.storage: Storage = storage or self.ledger
        self.broker = self._broker()

    def _broker(self) -> Broker:
        settings = Settings(
            memory=True, retention_check_seconds=3600, transaction_two_phase_commit_enable=True
        )
        return Broker(self.storage, settings, self.clock)

    async def start(self, topic: str = "t", partitions: int = 2) -> None:
        await self.broker.start()
        try:
            await self.broker.coordinate()
        except BaseException:
            await self.broker.stop()
            raise
        if not len(self.broker.topics):
            [made] = await self.broker.create_topics([NewTopic(name=topic, partitions=partitions)])
            assert isinstance(made, Topic)
        self.topic = self.broker.topic(topic)

    async def give_up(self, doing: Coroutine[None, None, object]) -> None:
        """Run it until storage withholds an answer, then cancel it."""
        self.ledger.withheld.clear()
        task = asyncio.ensure_future(doing)
        async with asyncio.timeout(30):
            await self.ledger.withheld.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def crash(self) -> None:
        """The broker is gone in the middle of whatever it did; another one starts on what is stored."""
        await self.close()
        self.ledger.dead = self.ledger.mute = False
        self.broker = self._broker()
        await self.start()

    async def close(self) -> None:
        self.broker.transactions.transitions.cancel()
        await self.broker.stop()

    async def committed(self, partition: int = 0) -> list[bytes]:
        """What a consumer with read_committed gets: it drops what it is told was aborted, as clients do."""
        place = self.topic.partition(partition)
        found = await self.broker.read(self.topic, partition, 0, 2**20, stable_only=True)
        aborted = sorted(
            self.storage.aborted(place, 0, found.bounds.stable), key=lambda each: each.first_offset
        )
        dropped: set[int] = set()
        values: list[bytes] = []
        for position, header in iter_headers(found.data):
            batch = memoryview(found.data)[position : position + header.length]
            while aborted and aborted[0].first_offset <= header.last_offset:
                dropped.add(aborted.pop(0).producer_id)
            if header.is_control:
                if not is_commit(batch):
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                values += [bytes(record.value or b"") for record in iter_records(batch)]
        return values

    def stable(self, partition: int = 0) -> int:
        return self.broker.bounds(self.topic, partition).stable

    def offset_of(self, group: str, partition: int = 0) -> int | None:
        found = self.broker.groups.offsets.get(GroupId(group), self.topic.partition(partition))
        return None if found is None else found.offset


class Client:
    """A transactional producer. `epoch_per_transaction` is one that knows the newer protocol."""

    def __init__(self, bench: Bench, id: str = "tx", *, epoch_per_transaction: bool) -> None:
        self.bench = bench
        self.id = id
        self.epoch_per_transaction = epoch_per_transaction
        self.producer = ProducerIdentity(-1, -1)
        self.sequences: dict[int, int] = {}
        self.connect()

    def connect(self) -> None:
        self.session = ConnectionIdentity()
        self._numbers = itertools.count(1)

    def lose_connection(self) -> None:
        self.session.is_open = False
        self.connect()

    def origin(self) -> CorrelatedOrigin:
        return CorrelatedOrigin(self.session, next(self._numbers))

    def member(
        self, origin: CorrelatedOrigin | None = None, producer: ProducerIdentity | None = None
    ) -> TransactionalRequest:
        return TransactionalRequest(
            id=self.id,
            producer=producer or self.producer,
            origin=origin or self.origin(),
            epoch_per_transaction=self.epoch_per_transaction,
        )

    async def init(
        self, *, timeout_ms: int = TIMEOUT_MS, again: bool = False, two_phase: bool = False
    ) -> ProducerIdentity:
        expected = self.producer if again else None
        transactions = self.bench.broker.transactions
        self._be(await transactions.init_producer(self.id, timeout_ms, expected, "ann", two_phase=two_phase))
        return self.producer

    async def resume(
        self, *, expected: ProducerIdentity | None = None, two_phase: bool = True
    ) -> ProducerIdentity | None:
        """The identity of the transaction that is prepared now."""
        new = NewProducer(
            id=self.id, timeout_ms=TIMEOUT_MS, expected=expected, owner="ann", is_two_phase=two_phase
        )
        resumed = await self.bench.broker.transactions.resume_producer(new)
        self._be(resumed.producer)
        return resumed.prepared

    def _be(self, producer: ProducerIdentity) -> None:
        if producer != self.producer:
            self.sequences.clear()
        self.producer = producer

    def partition(self, index: int) -> PartitionId:
        return self.bench.topic.partition(index)

    async def add(self, *partitions: int, member: TransactionalRequest | None = None) -> None:
        await self.bench.broker.transactions.add_partitions(
            member or self.member(), [self.partition(index) for index in partitions]
        )

    def batch(self, *values: bytes, partition: int = 0, transactional: bool = True) -> bytearray:
        """The next one in the sequence; it counts as sent."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        builder = BatchBuilder(
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        for value in values:
            builder.add(None, value, timestamp=self.bench.clock.now_ms())
        return builder.build()

    async def send(
        self, batch: bytearray, *, partition: int = 0, origin: CorrelatedOrigin | None = None
    ) -> int:
        writer = TransactionalWriter(
            id=self.id, origin=origin or self.origin(), epoch_per_transaction=self.epoch_per_transaction
        )
        produced = Produced(self.bench.topic, partition, memoryview(bytearray(batch)))
        [result] = await self.bench.broker.append([produced], writer).wait()
        if isinstance(result, Appended):
            return result.base_offset
        raise result

    async def write(self, *values: bytes, partition: int = 0) -> int:
        """Produce as part of the transaction; older clients say so before."""
        if not self.epoch_per_transaction:
            await self.add(partition)
        return await self.send(self.batch(*values, partition=partition), partition=partition)

    async def commit_offset(
        self, offset: int, *, partition: int = 0, group: str = "g", member: TransactionalRequest | None = None
    ) -> None:
        transactions = self.bench.broker.transactions
        if not self.epoch_per_transaction and member is None:
            await transactions.add_group(self.member(), group)
        new = NewOffset(partition=self.partition(partition), offset=offset)
        puts = self.bench.broker.groups.offsets.puts(GroupId(group), [new])
        await transactions.add_offsets(member or self.member(), group, puts)

    async def end(
        self, *, commit: bool = True, member: TransactionalRequest | None = None
    ) -> ProducerIdentity:
        self._be(await self.bench.broker.transactions.end(member or self.member(), commit=commit))
        return self.producer
