"""A transactional producer: ready-made batches that become visible when the transaction is committed.

The batches carry the producer id, the epoch and the sequence of their partition, which callers get here.
Writing to a partition adds it to the transaction. The caller commits with `together`, which can end several
producers' transactions at once.
"""

from posthouse.client.backoff import RETRY_SECONDS, ask_persistently
from posthouse.client.batch_sender import BatchSender
from posthouse.client.closable import Closable
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import BadArgument, RequestRefused, refused
from posthouse.client.together import CommitMember
from posthouse.protocols.kafka.codec.generated.end_txn import EndTxnRequest, EndTxnResponse
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.codec.primitives import Buffer

_SEQUENCES = 2**31


class TransactionalProducer(Closable):
    """Belongs to one thread. `begin` fences earlier producers with the transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int,
        patience: float = RETRY_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._patience = patience
        self._sender = BatchSender(cluster, transactional_id=transactional_id, patience=patience)
        self._sequences: dict[tuple[bytes, int], int] = {}
        self.producer_id = -1
        self.epoch = -1

    def begin(self) -> CommitMember:
        """Get a producer id and epoch for the transactional id; nothing is written yet."""
        response = ask_persistently(
            self._cluster,
            InitProducerIdRequest(
                transactional_id=self._id, transaction_timeout_ms=self._transaction_timeout_ms
            ),
            InitProducerIdResponse,
            lambda answer: self._refusal(answer.error_code),
            self._patience,
        )
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        return self.member

    @property
    def member(self) -> CommitMember:
        """The transaction's identity, for a commit."""
        return CommitMember(transactional_id=self._id, producer_id=self.producer_id, epoch=self.epoch)

    def next_sequence(self, info: TopicInfo, partition: int) -> int:
        """The sequence of the partition's next batch."""
        return self._sequences.get((info.id, partition), 0)

    def send(self, info: TopicInfo, partition: int, batch: Buffer, records: int) -> None:
        """Queue a batch; a failure is raised by a later call, at the latest by `flush`."""
        if self.producer_id < 0:
            raise BadArgument("the producer has not begun; call begin() first")
        place = (info.id, partition)
        self._sequences[place] = (self._sequences.get(place, 0) + records) % _SEQUENCES
        self._sender.send(info, partition, batch)

    def flush(self) -> None:
        """Return when all batches are durable; raises ProducerFenced if another producer has the id."""
        self._sender.flush()

    def abort(self, *, patience: float | None = None) -> None:
        """Abort the transaction. The producer has to `begin` again."""
        self._sender.close()
        if self.producer_id >= 0:
            ask_persistently(
                self._cluster,
                EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    committed=False,
                ),
                EndTxnResponse,
                lambda answer: self._refusal(answer.error_code),
                self._patience if patience is None else patience,
            )
        self.producer_id = self.epoch = -1

    def close(self) -> None:
        """Close the connections. Flushed batches wait for a commit, or for the transaction timeout."""
        self._sender.close()

    def _refusal(self, code: int) -> RequestRefused | None:
        return refused(code, None, self._id) if code else None
