"""Producers: idempotent ones that try again until they are told, and plain ones that do not."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Outcome, Partition, Send
from tests.simulation.batches import Producer, make_batch
from tests.simulation.kafka_client import KafkaClient, Refused
from tests.simulation.kafka_wire import Lost
from tests.simulation.recorder import Recorder

PAUSE = 0.05
PASSING = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""What may be different in a moment, or after a restart."""
REQUESTS_AHEAD = 3


@dataclass(slots=True)
class Batch:
    partition: Partition
    values: list[int]
    sequence: int
    data: bytearray
    sends: list[Send] = field(default_factory=list)

    def done(self, now: int, outcome: Outcome, base_offset: int | None = None) -> None:
        for number, send in enumerate(self.sends):
            send.completed = now
            send.outcome = outcome
            send.offset = None if base_offset is None else base_offset + number


class Sender:
    """Makes batches and requests of them. Each request has at most one batch of a partition."""

    def __init__(
        self, recorder: Recorder, client: KafkaClient, random: Random, partitions: list[Partition]
    ) -> None:
        self.recorder = recorder
        self.client = client
        self.random = random
        self.partitions = partitions
        self.process = recorder.process()
        self.producer: Producer | None = None
        self._sequences: dict[Partition, int] = {}

    def become(self, producer: Producer) -> None:
        self.producer = producer
        self._sequences.clear()

    def new_request(self, transaction: int | None = None) -> list[Batch]:
        count = self.random.randrange(1, len(self.partitions) + 1)
        return [self._new_batch(each, transaction) for each in self.random.sample(self.partitions, count)]

    def _new_batch(self, partition: Partition, transaction: int | None) -> Batch:
        recorder = self.recorder
        values = [recorder.value() for _ in range(self.random.choice((1, 1, 2, 5)))]
        sequence = -1
        if self.producer is not None:
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + len(values)
        data = make_batch(values, self.producer, sequence, transactional=transaction is not None)
        batch = Batch(partition, values, sequence, data)
        for value in values:
            # Recorded when it is sent, so that order is kept; an answer fills in the rest.
            send = Send(
                self.process, recorder.now, 2**62, partition, value, Outcome.UNKNOWN, None, transaction
            )
            batch.sends.append(send)
            recorder.history.append(send)
        return batch

    async def attempt(
        self, requests: list[list[Batch]], transactional_id: str | None = None
    ) -> tuple[list[list[Batch]], Refused | Lost | None]:
        """Send; returns what is not confirmed, and why."""
        messages = [
            self.client.produce_request({each.partition: each.data for each in batches}, transactional_id)
            for batches in requests
        ]
        answers = await self.client.ask_ahead(messages, ProduceResponse)
        left: list[list[Batch]] = []
        reason: Refused | Lost | None = None
        for batches, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Lost):
                reason = reason or answer
                left.append(batches)
                continue
            offsets = self.client.produced(answer)
            failed = []
            for batch in batches:
                offset = offsets[batch.partition]
                if isinstance(offset, Refused):
                    failed.append(batch)
                    if reason is None or isinstance(reason, Lost):
                        reason = offset
                else:
                    batch.done(self.recorder.now, Outcome.OK, offset)
            if failed:
                left.append(failed)
        return left, reason

    def give_up(self, requests: list[list[Batch]]) -> None:
        for batches in requests:
            for batch in batches:
                batch.done(self.recorder.now, Outcome.UNKNOWN)


async def produce(sender: Sender, requests: int, *, idempotent: bool) -> None:
    while requests > 0 and not sender.recorder.is_over:
        if idempotent and sender.producer is None:
            try:
                sender.become(await sender.client.init_producer())
            except (Lost, Refused):
                await asyncio.sleep(PAUSE)
                continue
        ahead = sender.random.randrange(1, REQUESTS_AHEAD + 1)
        requests -= ahead
        await _send(sender, [sender.new_request() for _ in range(ahead)], again=idempotent)
        await asyncio.sleep(PAUSE * sender.recorder.pace * sender.random.random())
    sender.client.disconnect()


async def _send(sender: Sender, requests: list[list[Batch]], *, again: bool) -> None:
    pause = PAUSE
    while requests:
        requests, reason = await sender.attempt(requests)
        if not requests:
            return
        is_passing = isinstance(reason, Lost) or (isinstance(reason, Refused) and reason.code in PASSING)
        # What follows a batch that failed is out of order, until all of it is sent again.
        follows = isinstance(reason, Refused) and reason.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not again or not (is_passing or follows) or sender.recorder.is_over:
            sender.give_up(requests)
            sender.producer = None
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)
