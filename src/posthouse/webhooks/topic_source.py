"""The messages of a topic, by the subscription of the webhook."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.filters.filter import EVERYTHING
from posthouse.broker.filters.sql import compile_sql
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.broker.subscriptions.leases import Acknowledgement, Verdict
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.broker.webhooks.definition import Webhook
from posthouse.broker.webhooks.group_members import member_of
from posthouse.model.errors import NotLeased, PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.webhooks.delivery import Delivery
from posthouse.webhooks.selection import WebhookSelection

log = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024


class TopicSource:
    """Owned by the event loop."""

    def __init__(self, broker: Broker, webhook: Webhook, order: KeyOrder | None) -> None:
        """`order` outlives this source: it knows of messages that wait for their next attempt."""
        assert webhook.topic is not None
        self._broker = broker
        self._webhook = webhook
        self._topic = webhook.topic
        self._group = webhook.group
        self._member = member_of(webhook)
        self._order = order
        self._filter = EVERYTHING if webhook.filter is None else compile_sql(webhook.filter)
        self._first = 0
        """The partition that is read first: each in turn."""
        self._said: defaultdict[PartitionId, dict[int, Acknowledgement]] = defaultdict(dict)
        self._saying: asyncio.Task[None] | None = None
        self._burials: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def take(self, most: int, seconds: float, lock_seconds: float) -> list[Delivery]:
        topic = self._broker.topic(self._topic)
        partitions = topic.partition_ids()
        self._first = (self._first + 1) % len(partitions)
        name = (self._webhook.filter, self._webhook.ordered)
        selection = WebhookSelection(name, self._filter, most, self._order)
        wish = Wish(
            max_bytes=_READ_BYTES,
            max_records=most,
            is_strict=True,
            seconds=seconds,
            lock_seconds=lock_seconds,
            selection=selection,
        )
        found = await self._broker.subscriptions.fetch(
            self._group,
            self._member,
            [*partitions[self._first :], *partitions[: self._first]],
            wish,
            lambda: not self._is_closed,
        )
        deliveries = [
            self._delivery(partition, offset, run.deliveries, selection)
            for partition, taken in found.items()
            if isinstance(taken, Taken)
            for run in taken.runs
            for offset in range(run.first, run.last + 1)
        ]
        errors = [each for each in found.values() if isinstance(each, PosthouseError)]
        if errors and not deliveries:
            raise errors[0]
        return deliveries

    def _delivery(
        self, partition: PartitionId, offset: int, attempt: int, selection: WebhookSelection
    ) -> Delivery:
        selected = selection.records[partition, offset]
        record = selected.record
        return Delivery(
            place=partition,
            offset=offset,
            topic=self._topic,
            key=record.key,
            value=bytes(record.value),
            headers=selected.headers,
            timestamp=record.timestamp,
            attempt=attempt,
            unreadable=selected.unreadable,
        )

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        self._say(deliveries, Verdict.ACCEPT)

    def retry(self, deliveries: Sequence[Delivery], seconds: float, *, counts: bool) -> None:
        """The lease ends when they are due: a delivery that is waited for costs no memory."""
        self._say(deliveries, Verdict.RENEW, seconds, counts=counts)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        leased: defaultdict[PartitionId, list[int]] = defaultdict(list)
        for each in deliveries:
            leased[each.place].append(each.offset)
        self._broker.subscriptions.give_back(self._group, self._member, leased)

    def bury(self, delivery: Delivery, notes: Sequence[tuple[bytes, bytes]]) -> None:
        offset = delivery.offset
        said = Acknowledgement(offset, offset, [Verdict.REJECT], notes=notes)
        burial = asyncio.create_task(self._acknowledge({delivery.place: [said]}))
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)

    def _say(
        self,
        deliveries: Iterable[Delivery],
        verdict: Verdict,
        seconds: float | None = None,
        *,
        counts: bool = True,
    ) -> None:
        for each in deliveries:
            self._said[each.place][each.offset] = Acknowledgement(
                each.offset, each.offset, [verdict], seconds, counts
            )
        if self._saying is None:
            self._saying = asyncio.create_task(self._say_all())

    async def _say_all(self) -> None:
        """What is said while storage is busy is one commit."""
        try:
            while self._said:
                said = {place: [each[at] for at in sorted(each)] for place, each in self._said.items()}
                self._said.clear()
                await self._acknowledge(said)
        finally:
            self._saying = None

    async def _acknowledge(self, said: Mapping[PartitionId, Sequence[Acknowledgement]]) -> None:
        subscriptions = self._broker.subscriptions
        try:
            results = await subscriptions.acknowledge(self._group, self._member, said)
        except PosthouseError as failure:
            results = dict.fromkeys(said, failure)
        for partition, error in results.items():
            refused = said[partition]
            if isinstance(error, NotLeased) and len(refused) > 1:  # one of them is not, and all are refused
                for each in refused:
                    await self._acknowledge({partition: [each]})
            elif isinstance(error, NotLeased):
                log.info("webhook %s: %s: %s", self._webhook.name, partition, error)
            elif error is not None:
                log.error(
                    "webhook %s: what became of %d messages of %s cannot be stored, they come again: %s",
                    *(self._webhook.name, len(refused), partition, error),
                )

    async def close(self) -> None:
        self._is_closed = True
        while self._saying is not None or self._burials:
            waiting = [*self._burials, *([] if self._saying is None else [self._saying])]
            await asyncio.wait(waiting)
            await asyncio.sleep(0)  # for the callbacks
