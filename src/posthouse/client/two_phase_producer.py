"""A transactional producer for two-phase commits: what it has prepared stays so until its owner decides.

The owner decides together with another store, usually a database:

    producer.recover()             once, before anything else: returns what an earlier producer has prepared
    producer.begin()
    producer.send("topic", b"…")
    prepared = producer.prepare()  then commit the database transaction, with `prepared` stored in it
    producer.commit()

A transaction that is not prepared yet times out; a prepared one does not. The calls may be repeated: each is
retried while the broker cannot be reached. See docs/two-phase.md, and `posthouse.consistency.two_phase` for a
helper that does all of it.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from posthouse.client.backoff import RETRY_SECONDS, ask_persistently
from posthouse.client.batch_sender import REQUEST_BYTES, BatchSender
from posthouse.client.closable import Closable
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import BadArgument, NotAllowed, RequestRefused, refused
from posthouse.client.producer import BATCH_BYTES
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.end_txn import EndTxnRequest, EndTxnResponse
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.records.batch import Readable
from posthouse.records.builder import BatchBuilder
from posthouse.records.partitioner import partition_of

TRANSACTION_MS = 60_000
_NOT_ALLOWED = 53
_NOT_OPEN = 48
_SEQUENCES = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """Identifies one transaction, and no other one ever: what the owner stores with its decision."""

    transactional_id: str
    producer_id: int
    epoch: int


class ProducerState(Enum):
    NEW = "not recovered yet"
    READY = "without a transaction"
    OPEN = "writing"
    PREPARED = "waiting for the decision"


_S = ProducerState


class TwoPhaseProducer(Closable):
    """Belongs to one thread. `recover` fences earlier producers with the transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_MS,
        patience: float = RETRY_SECONDS,
    ) -> None:
        """`transaction_timeout_ms` is from `begin` to `prepare`, `patience` for a broker that cannot be
        reached, in seconds."""
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._patience = patience
        self._sender = BatchSender(cluster, transactional_id=transactional_id, patience=patience)
        self._topics: dict[str, TopicInfo] = {}
        self._open: dict[tuple[str, int], BatchBuilder] = {}
        self._open_bytes = 0
        self._sequences: dict[tuple[str, int], int] = {}
        self._producer = (-1, -1)
        self._sticky = 0
        self.state = _S.NEW
        self.has_records = False
        """Whether something was sent in the open transaction."""

    def close(self) -> None:
        """Close the connections. A transaction that is not prepared times out; one that is, waits."""
        self._discard()

    def recover(self) -> PreparedTransaction | None:
        """Fence earlier producers. Returns the transaction that they have left, which is prepared now: commit
        or abort it before anything else."""
        self._discard()
        prepared = self._init(keeps=True)
        self.state = _S.READY if prepared is None else _S.PREPARED
        return prepared

    def begin(self) -> None:
        self._require(_S.READY)
        self._init(continues=True)
        self._sequences.clear()
        self._sticky = time.monotonic_ns()
        self.has_records = False
        self.state = _S.OPEN

    def send(
        self,
        topic: str,
        value: Readable | None,
        key: bytes | None = None,
        headers: Iterable[tuple[str, Readable | None]] = (),
        *,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue a record; a failure is raised by a later call, at the latest by `prepare`."""
        self._require(_S.OPEN)
        info = self._topics.get(topic)
        if info is None:
            info = self._topics[topic] = self._cluster.topic(topic, create=True)
        if partition is None:
            partition = self._sticky % info.partitions if key is None else partition_of(key, info.partitions)
        else:
            info.check_partitions([partition])
        place = (topic, partition)
        builder = self._open.get(place)
        if builder is None:
            builder = BatchBuilder(
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
                base_sequence=self._sequences.get(place, 0),
                transactional=True,
            )
        before = builder.size_estimate if builder.count else 0
        now = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        try:
            builder.add(key, value, headers, now)
        except PosthouseError as error:
            raise BadArgument(f"a record cannot be sent: {error}") from None
        self._open[place] = builder
        self._open_bytes += builder.size_estimate - before
        self.has_records = True
        if builder.size_estimate >= BATCH_BYTES or self._open_bytes >= REQUEST_BYTES:
            self._dispatch()

    def prepare(self) -> PreparedTransaction:
        """Everything is durable on return, and the transaction waits for `commit` or `abort`, however long
        that takes."""
        self._require(_S.OPEN)
        if not self.has_records:
            raise BadArgument(f"{self._id!r} has sent nothing that could be prepared; send records, or abort")
        self._dispatch()
        self._sender.flush()
        written = self._producer
        prepared = self._init(keeps=True, continues=True)
        if prepared is None or (prepared.producer_id, prepared.epoch) != written:
            self.state = _S.READY
            raise refused(_NOT_OPEN, None, self._id)
        self.state = _S.PREPARED
        return prepared

    def commit(self) -> None:
        """Commit what was prepared. Raises RequestRefused if an operator has aborted it."""
        self._require(_S.PREPARED)
        self._end(commit=True)

    def abort(self) -> None:
        """Abort what was written or prepared."""
        self._require(_S.OPEN, _S.PREPARED)
        self._discard()
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        producer_id, epoch = self._producer
        response = ask_persistently(
            self._cluster,
            EndTxnRequest(
                transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=commit
            ),
            EndTxnResponse,
            lambda answer: self._refusal(answer.error_code),
            self._patience,
        )
        self._producer = (response.producer_id, response.producer_epoch)
        self.state = _S.READY

    def _init(self, *, keeps: bool = False, continues: bool = False) -> PreparedTransaction | None:
        """Get the next identity. One that `keeps` the open transaction prepares it, otherwise it is aborted;
        one that `continues` is refused if another producer has begun since then."""
        producer_id, epoch = self._producer if continues else (-1, -1)
        response = ask_persistently(
            self._cluster,
            InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                enable2_pc=keeps,
                keep_prepared_txn=keeps,
            ),
            InitProducerIdResponse,
            lambda answer: self._refusal(answer.error_code),
            self._patience,
        )
        self._producer = (response.producer_id, response.producer_epoch)
        if response.ongoing_txn_producer_id < 0:
            return None
        return PreparedTransaction(
            transactional_id=self._id,
            producer_id=response.ongoing_txn_producer_id,
            epoch=response.ongoing_txn_producer_epoch,
        )

    def _dispatch(self) -> None:
        batches, self._open, self._open_bytes = self._open, {}, 0
        for place, builder in batches.items():
            topic, partition = place
            self._sequences[place] = (self._sequences.get(place, 0) + builder.count) % _SEQUENCES
            self._sender.send(self._topics[topic], partition, builder.build())

    def _discard(self) -> None:
        self._sender.close()
        self._open.clear()
        self._open_bytes = 0
        self._topics.clear()

    def _require(self, *states: ProducerState) -> None:
        if self.state not in states:
            raise BadArgument(
                f"the producer {self._id!r} is {self.state.value}, and must be {states[0].value} for this; "
                "call recover, begin, send, prepare and commit in this order"
            )

    def _refusal(self, code: int) -> RequestRefused | None:
        if code == _NOT_ALLOWED:
            return NotAllowed(
                f"two-phase commits of {self._id!r} are not allowed; start the broker with "
                "transaction_two_phase_commit_enable, and with logins ask an administrator for "
                f"'posthouse acl allow YOU write,two-phase-commit transactional-id {self._id}'",
                code,
            )
        return refused(code, None, self._id) if code else None
