"""The partitions that one produce request writes to as part of a transaction."""

from posthouse.broker.transactions.admissions import admissions, missing
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction, Work
from posthouse.model.errors import InvalidTransaction, UnknownProducerId
from posthouse.model.ids import PartitionId
from posthouse.storage.operations import Put


class TransactionAdmission:
    """Created by `Transactions.admit` after the producer was checked."""

    __slots__ = ("_put", "_request", "_transaction", "_work")

    def __init__(self, request: TransactionalRequest, transaction: Transaction, work: Work) -> None:
        self._request = request
        self._transaction = transaction
        self._work = work
        self._put: set[PartitionId] | None = None

    def include(self, producer: ProducerIdentity, partition: PartitionId) -> None:
        """Raises if the partition is not part of the transaction: a late request must not get into it."""
        if producer != self._request.producer:
            raise UnknownProducerId("one request may carry the batches of one producer only")
        if self._request.epoch_per_transaction:
            self._work.partitions.add(partition)
        elif partition not in self._work.partitions:
            raise InvalidTransaction(f"{partition} is not part of the transaction of {self._request.id!r}")

    def puts(self) -> list[Put]:
        """State that must be durable with the records, so that recovery knows where markers are needed."""
        if self._work.is_stored:
            return []
        self._put = set(self._work.partitions)
        new = missing(self._transaction, self._put)
        self._work.admitted |= new
        return [self._transaction.put(), *admissions(self._transaction, new)]

    def durable(self) -> None:
        if self._put is not None:
            self._work.stored = self._put | (self._work.stored or set())
