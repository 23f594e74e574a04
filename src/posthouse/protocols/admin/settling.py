"""What becomes of messages that were taken by HTTP: each receipt is settled, or refused with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from posthouse.broker.subscriptions.leases import Acknowledgement, Verdict
from posthouse.broker.subscriptions.subscriptions import Subscriptions
from posthouse.model.errors import BadRequest, NotLeased, PosthouseError
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.admin.receipts import Receipt, decode_receipt
from posthouse.protocols.admin.taking import MEMBER


class _Said(NamedTuple):
    receipt: str
    acknowledgement: Acknowledgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a client wants for these messages."""

    receipts: Sequence[str]
    verdict: Verdict
    seconds: float | None = None
    """For RENEW."""
    only_waits: bool = False
    """See `Acknowledgement`."""


@dataclass(slots=True, kw_only=True)
class Settled:
    count: int = 0
    refused: dict[str, PosthouseError] = field(default_factory=dict)
    """By receipt."""


class Settling:
    """One request."""

    def __init__(self, subscriptions: Subscriptions, group: GroupId, topic: Topic) -> None:
        self._subscriptions = subscriptions
        self._group = group
        self._topic = topic
        self._said: dict[PartitionId, dict[int, _Said]] = {}
        self._settled = Settled()

    async def settle(self, decisions: Sequence[Decision]) -> Settled:
        """Durable on return."""
        for decision in decisions:
            for text in decision.receipts:
                try:
                    self._add(text, decision)
                except PosthouseError as error:
                    self._settled.refused[text] = error
        for partition, said in self._said.items():
            await self._acknowledge(partition, [said[offset] for offset in sorted(said)])
        return self._settled

    def _add(self, text: str, decision: Decision) -> None:
        receipt = decode_receipt(text)
        partition = self._topic.existing_partition(receipt.partition)
        self._check_current(partition, receipt)
        said = self._said.setdefault(partition, {})
        if receipt.offset in said:
            raise BadRequest(f"the receipt {text[:80]!r} is named twice")
        acknowledgement = Acknowledgement(
            receipt.offset,
            receipt.offset,
            [decision.verdict],
            decision.seconds,
            only_waits=decision.only_waits,
        )
        said[receipt.offset] = _Said(text, acknowledgement)

    def _check_current(self, partition: PartitionId, receipt: Receipt) -> None:
        subscribed = self._subscriptions.find(self._group, partition)
        if (
            subscribed is None
            or subscribed.generation != receipt.generation
            or subscribed.holder(receipt.offset) != MEMBER
            or subscribed.progress.deliveries(receipt.offset) + 1 != receipt.deliveries
        ):
            raise NotLeased(
                f"the lease on offset {receipt.offset} of partition {receipt.partition} has ended: the "
                "message is settled, or comes again"
            )

    async def _acknowledge(self, partition: PartitionId, said: Sequence[_Said]) -> None:
        """All of them; one by one if a lease has just ended."""
        results = await self._subscriptions.acknowledge(
            self._group, MEMBER, {partition: [each.acknowledgement for each in said]}
        )
        error = results[partition]
        if isinstance(error, NotLeased) and len(said) > 1:
            for each in said:
                await self._acknowledge(partition, [each])
        elif error is not None:
            self._settled.refused |= dict.fromkeys((each.receipt for each in said), error)
        else:
            self._settled.count += len(said)
