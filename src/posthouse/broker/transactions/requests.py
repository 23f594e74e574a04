"""Requests of transactional producers."""

from dataclasses import dataclass

from posthouse.broker.transactions.request_order import RequestOrigin
from posthouse.broker.transactions.transaction import ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalRequest:
    """A transactional id, its producer as the client knows it, and the origin of the request."""

    id: str
    producer: ProducerIdentity
    origin: RequestOrigin
    epoch_per_transaction: bool = False
    """The producer takes a new epoch with every transaction, and adds partitions by writing to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalWriter:
    """The transaction of a produce request; the batches name the producer."""

    id: str
    origin: RequestOrigin
    epoch_per_transaction: bool = False

    def request(self, producer: ProducerIdentity) -> TransactionalRequest:
        return TransactionalRequest(
            id=self.id,
            producer=producer,
            origin=self.origin,
            epoch_per_transaction=self.epoch_per_transaction,
        )
