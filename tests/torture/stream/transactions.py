"""A transactional producer that also moves a group's offsets, each transaction whole or not at all."""

import asyncio
from random import Random

from posthouse.protocols.kafka.codec.generated.end_txn import EndTxnRequest, EndTxnResponse
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.codec.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import CommitOffset, CommittedOffset, End, Outcome, Partition, Send
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.stream.links import Link, RefusedWith, Topics, build_batch, check, group_link, produce
from tests.torture.stream.offsets import fetch_committed
from tests.torture.workloads import RETRY_SECONDS

_TIMEOUT_MS = 60_000
# The store takes nothing; or the id was forgotten, which a clock that jumps by weeks may do.
_BEGIN_ANEW = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


class TransactionalProducer:
    """With every new connection it begins anew, which aborts what it had left open."""

    def __init__(self, recorder: Recorder, topics: Topics, random: Random, name: str) -> None:
        self._recorder = recorder
        self._topics = topics
        self._random = random
        self._process = recorder.process()
        self._name = name
        self._group = f"group of {name}"
        self._producer_id = self._epoch = -1
        self._sequences: dict[Partition, int] = {}
        self._progress: dict[Partition, int] = {}
        self._coordinator: Wire
        """Of the group whose offsets it commits."""

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire, group_link(addresses, self._group) as self._coordinator:
            while True:
                try:
                    await self._begin(wire)
                    await self._learn_progress()
                    while True:
                        await self._transaction(wire)
                except RefusedWith as refusal:
                    if refusal.code not in _BEGIN_ANEW:
                        raise
                    self._recorder.refused()
                    await asyncio.sleep(RETRY_SECONDS)

    async def settle(self, addresses: Addresses) -> None:
        """Abort what may be open, so that everything that is committed can be read."""
        async with Link(addresses) as wire, group_link(addresses, self._group) as self._coordinator:
            await self._begin(wire)
            await self._learn_progress()

    async def _begin(self, wire: Wire) -> None:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=_TIMEOUT_MS)
        answer = await wire.ask(request, InitProducerIdResponse)
        while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(RETRY_SECONDS)
            answer = await wire.ask(request, InitProducerIdResponse)
        check(answer.error_code, "InitProducerId")
        self._become(answer.producer_id, answer.producer_epoch)

    def _become(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._sequences.clear()

    async def _learn_progress(self) -> None:
        invoked = self._recorder.now()
        found = await fetch_committed(self._coordinator, self._topics, self._group)
        now = self._recorder.now()
        for partition, offset in found.items():
            self._recorder.add(CommittedOffset(self._process, invoked, now, self._group, partition, offset))
            self._progress[partition] = offset or 0

    async def _transaction(self, wire: Wire) -> None:
        number = self._recorder.transaction()
        for _ in range(self._random.choice((1, 2, 4))):
            await self._send(wire, number)
        if self._random.random() < 0.7:
            await self._send_offsets(number)
        await self._end(wire, number, commit=self._random.random() < 0.8)

    async def _send(self, wire: Wire, number: int) -> None:
        partition = self._random.choice(self._topics.all())
        values = [self._recorder.value() for _ in range(self._random.choice((1, 3)))]
        await self._send_values(wire, number, partition, values)

    async def _send_values(self, wire: Wire, number: int, partition: Partition, values: list[int]) -> None:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        batch = build_batch(
            values,
            self._random,
            producer_id=self._producer_id,
            epoch=self._epoch,
            sequence=sequence,
            transactional=True,
        )
        invoked, outcome, base = self._recorder.now(), Outcome.UNKNOWN, 0
        try:
            answer = await wire.ask(produce(self._topics, {partition: batch}, self._name), ProduceResponse)
            [result] = answer.responses[0].partition_responses
            check(result.error_code, "Produce", result.error_message)
            outcome, base = Outcome.OK, result.base_offset
        finally:
            now = self._recorder.now()
            for index, value in enumerate(values):
                offset = base + index if outcome is Outcome.OK else None
                self._recorder.add(
                    Send(self._process, invoked, now, partition, value, outcome, offset, number)
                )

    async def _send_offsets(self, number: int) -> None:
        """As if it had read a little more of a partition."""
        partition = self._random.choice(self._topics.all())
        await self._send_offset(number, partition, self._progress.get(partition, 0) + 1)

    async def _send_offset(self, number: int, partition: Partition, offset: int) -> None:
        name, index = partition
        self._progress[partition] = offset
        place = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=[place])],
        )
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            answer = await self._coordinator.ask(request, TxnOffsetCommitResponse)
            check(answer.topics[0].partitions[0].error_code, "TxnOffsetCommit")
            outcome = Outcome.OK
        finally:
            now = self._recorder.now()
            self._recorder.add(
                CommitOffset(self._process, invoked, now, self._group, partition, offset, outcome, number)
            )

    async def _end(self, wire: Wire, number: int, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            answer = await wire.ask(request, EndTxnResponse)
            check(answer.error_code, "EndTxn")
            outcome = Outcome.OK
            self._become(answer.producer_id, answer.producer_epoch)
        finally:
            now = self._recorder.now()
            self._recorder.add(End(self._process, invoked, now, number, commit, outcome))
        self._recorder.moved()
        if not commit:
            await self._learn_progress()
