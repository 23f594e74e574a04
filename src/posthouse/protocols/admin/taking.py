"""Messages of a group that are taken by HTTP: leased for a while, and settled with their receipts.

All clients of a group are one member of its subscription: a receipt says which delivery it is for. So a
client needs no connection and no session, and another one may settle what it has taken.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.broker import Broker
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.model.errors import BadRequest, PosthouseError
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.admin.consumed_records import BytesEncoding, ConsumedRecord, consumed_record
from posthouse.protocols.admin.receipts import Receipt
from posthouse.protocols.admin.record_reading import on_a_thread
from posthouse.records.batch import iter_headers
from posthouse.records.record import body_of, iter_body

MEMBER: Final = MemberId("http")
_READ_BYTES: Final = 1024 * 1024


class TakenMessage(ConsumedRecord, frozen=True, kw_only=True, omit_defaults=True):
    receipt: Annotated[str, Meta(description="What the message is settled with.")]
    deliveries: Annotated[int, Meta(description="How often it was delivered, with this time.")]


class TakenMessages(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    messages: list[TakenMessage]
    error: Annotated[
        str | None, Meta(description="Why there are none, if that was found out while waiting.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """One request."""

    broker: Broker
    topic: Topic
    group: GroupId
    most: int
    lease_seconds: float
    encoding: BytesEncoding

    async def take(self, seconds: float) -> TakenMessages:
        """At once, or when there are some. Raises PosthouseError."""
        wish = Wish(
            max_bytes=_READ_BYTES,
            max_records=self.most,
            is_strict=True,
            seconds=seconds,
            lock_seconds=self.lease_seconds,
        )
        subscriptions = self.broker.subscriptions
        partitions = self.topic.partition_ids()
        first = self.broker.now_ms() % len(partitions)  # each has its turn to be looked at first
        wanted = partitions[first:] + partitions[:first]
        found = await subscriptions.fetch(self.group, MEMBER, wanted, wish, lambda: True)
        taken = {partition: each for partition, each in found.items() if isinstance(each, Taken)}
        errors = [each for each in found.values() if isinstance(each, PosthouseError)]
        if errors and not taken:
            raise errors[0]
        try:
            return TakenMessages(messages=await on_a_thread(lambda: self._messages(taken)))
        except BaseException:  # cancelled: the client is gone
            leased = {partition: list(_deliveries(each)) for partition, each in taken.items()}
            subscriptions.give_back(self.group, MEMBER, leased)
            raise

    async def later(self, seconds: float) -> AsyncIterator[bytes]:
        """The same for a client that waits for its answer. If it is cut off, nothing is leased."""
        try:
            answer = await self.take(seconds)
        except asyncio.CancelledError:
            answer = TakenMessages(messages=[])  # the broker stops: the client hears that there is nothing
        except PosthouseError as error:
            answer = TakenMessages(messages=[], error=str(error))
        yield msgspec.json.encode(answer)

    def _messages(self, taken: Mapping[PartitionId, Taken]) -> list[TakenMessage]:
        """Called on a thread."""
        return [
            message
            for partition, each in taken.items()
            for message in self._of_partition(partition.index, each)
        ]

    def _of_partition(self, partition: int, taken: Taken) -> Sequence[TakenMessage]:
        deliveries = _deliveries(taken)
        found: list[TakenMessage] = []
        view = memoryview(taken.data)
        for position, header in iter_headers(taken.data):
            batch = view[position : position + header.length]
            try:
                for record in iter_body(body_of(batch, header), header):
                    if (count := deliveries.get(record.offset)) is not None:
                        receipt = Receipt(partition, taken.generation, record.offset, count)
                        found.append(
                            self._message(consumed_record(partition, record, self.encoding), receipt)
                        )
            except BadRequest:
                # The broker stores compressed batches without opening them: this one is not what it says. It
                # stays leased, comes again, and in the end is delivered too often.
                continue
        return found

    def _message(self, record: ConsumedRecord, receipt: Receipt) -> TakenMessage:
        return TakenMessage(
            **msgspec.structs.asdict(record), receipt=receipt.encode(), deliveries=receipt.deliveries
        )


def _deliveries(taken: Taken) -> dict[int, int]:
    """By offset."""
    return {offset: run.deliveries for run in taken.runs for offset in range(run.first, run.last + 1)}
