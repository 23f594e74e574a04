"""Producers: one that sends a batch again until it knows, and one that sends everything once."""

import asyncio
from dataclasses import dataclass
from random import Random

from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import PartitionProduceResponse, ProduceResponse
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Outcome, Partition, Send
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.stream.links import (
    Link,
    RefusedWith,
    Topics,
    build_batch,
    produce,
)
from tests.torture.workloads import LOST, RETRY_SECONDS

WINDOW = 3
"""Requests under way at once; the broker remembers five batches of a producer."""


@dataclass(slots=True)
class _Pending:
    partition: Partition
    values: list[int]
    batch: bytearray
    invoked: int


class IdempotentProducer:
    """Sends what was not acknowledged again, to the next broker too: every value must be there once."""

    def __init__(self, recorder: Recorder, topics: Topics, random: Random) -> None:
        self._recorder = recorder
        self._topics = topics
        self._random = random
        self._process = recorder.process()
        self._producer_id = self._epoch = -1
        self._sequences: dict[Partition, int] = {}
        self._unknown: list[_Pending] = []

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            if self._producer_id < 0:
                await self._begin(wire)
            while True:
                await self._window(wire)

    async def _begin(self, wire: Wire) -> None:
        answer = await wire.ask(InitProducerIdRequest(transaction_timeout_ms=60_000), InitProducerIdResponse)
        if answer.error_code:
            raise RefusedWith("InitProducerId", answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _window(self, wire: Wire) -> None:
        """Some batches at once. Whatever is not acknowledged is first in the next window, in its order."""
        while len(self._unknown) < WINDOW:
            self._unknown.append(self._next())
        sent = [wire.send(produce(self._topics, {each.partition: each.batch})) for each in self._unknown]
        refused: set[Partition] = set()
        for pending, each in zip(list(self._unknown), sent, strict=True):
            answer = await wire.receive(each)
            assert isinstance(answer, ProduceResponse)
            result = answer.responses[0].partition_responses[0]
            if _may_be_asked_again(result.error_code, is_behind_another=pending.partition in refused):
                refused.add(pending.partition)
            else:
                self._acknowledge(pending, result)
                self._unknown.remove(pending)
        if refused:
            self._recorder.refused()
            await asyncio.sleep(RETRY_SECONDS)

    def _next(self) -> _Pending:
        partition = self._random.choice(self._topics.all())
        values = [self._recorder.value() for _ in range(self._random.choice((1, 1, 2, 5)))]
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        batch = build_batch(
            values, self._random, producer_id=self._producer_id, epoch=self._epoch, sequence=sequence
        )
        return _Pending(partition, values, batch, self._recorder.now())

    def _acknowledge(self, pending: _Pending, answer: PartitionProduceResponse) -> None:
        if answer.error_code:
            raise RefusedWith("Produce", answer.error_code, answer.error_message)
        now = self._recorder.now()
        for index, value in enumerate(pending.values):
            offset = answer.base_offset + index
            self._recorder.add(
                Send(self._process, pending.invoked, now, pending.partition, value, Outcome.OK, offset)
            )
        self._recorder.moved()

    def close(self) -> None:
        """Nobody will ask for what is left."""
        for pending in self._unknown:
            _record_unknown(self._recorder, self._process, pending)
        self._unknown.clear()


class PlainProducer:
    """Several partitions in one request, sent once: what is not answered may be there or not."""

    def __init__(
        self, recorder: Recorder, topics: Topics, random: Random, *, sends_again: bool = False
    ) -> None:
        self._recorder = recorder
        self._topics = topics
        self._random = random
        self._process = recorder.process()
        self._sends_again = sends_again
        """The mistake of a careless client, for negative controls."""
        self._left: list[_Pending] = []

    async def live(self, addresses: Addresses) -> None:
        try:
            async with Link(addresses) as wire:
                while True:
                    await self._send(wire, self._left or self._next())
        except (*LOST, asyncio.CancelledError):
            if not self._sends_again:
                self.close()
            raise

    def close(self) -> None:
        for pending in self._left:
            _record_unknown(self._recorder, self._process, pending)
        self._left = []

    def _next(self) -> list[_Pending]:
        everything = self._topics.all()
        chosen = self._random.sample(everything, self._random.randint(1, len(everything)))
        now = self._recorder.now()
        batches = []
        for partition in chosen:
            values = [self._recorder.value() for _ in range(self._random.choice((1, 3)))]
            batches.append(_Pending(partition, values, build_batch(values, self._random), now))
        return batches

    async def _send(self, wire: Wire, batches: list[_Pending]) -> None:
        self._left = list(batches)
        request = produce(self._topics, {each.partition: each.batch for each in batches})
        answer = await wire.ask(request, ProduceResponse)
        now = self._recorder.now()
        self._left = []
        refused = False
        for pending, topic in zip(batches, answer.responses, strict=True):
            [result] = topic.partition_responses
            refused = refused or bool(result.error_code)
            self._record(pending, result, now)
        if refused:
            self._recorder.refused()
            await asyncio.sleep(RETRY_SECONDS)
        else:
            self._recorder.moved()

    def _record(self, pending: _Pending, result: PartitionProduceResponse, now: int) -> None:
        outcome = Outcome.OK
        if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            # A full disk took nothing; after any other failure nobody knows what the disk holds.
            full = "no space left" in (result.error_message or "")
            outcome = Outcome.FAILED if full else Outcome.UNKNOWN
        elif result.error_code:
            raise RefusedWith("Produce", result.error_code, result.error_message)
        for index, value in enumerate(pending.values):
            offset = result.base_offset + index if outcome is Outcome.OK else None
            self._recorder.add(
                Send(self._process, pending.invoked, now, pending.partition, value, outcome, offset)
            )


def _may_be_asked_again(code: int, *, is_behind_another: bool) -> bool:
    """A broker that cannot store says so; a batch behind one that it did not store is out of order."""
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return is_behind_another
    return code == ErrorCode.KAFKA_STORAGE_ERROR


def _record_unknown(recorder: Recorder, process: int, pending: _Pending) -> None:
    now = recorder.now()
    for value in pending.values:
        recorder.add(Send(process, pending.invoked, now, pending.partition, value, Outcome.UNKNOWN, None))
