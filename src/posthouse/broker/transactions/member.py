"""Who speaks of a transaction."""

from dataclasses import dataclass

from posthouse.broker.transactions.origins import Origin
from posthouse.broker.transactions.transaction import ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A transactional id, its producer as the client knows it, and where the request came from."""

    id: str
    producer: ProducerIdentity
    origin: Origin
    bumps_epoch: bool = False
    """The client takes a new epoch with every transaction, and adds partitions by writing to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """What a produce says of its transaction; the producer itself is named in the batches."""

    id: str
    origin: Origin
    bumps_epoch: bool = False

    def member(self, producer: ProducerIdentity) -> Member:
        return Member(id=self.id, producer=producer, origin=self.origin, bumps_epoch=self.bumps_epoch)
