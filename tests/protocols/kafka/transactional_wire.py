"""A transactional producer made of single requests, in the versions of older or newer clients."""

import datetime
import itertools
from typing import Any

from posthouse.records.builder import BatchBuilder
from tests.protocols.kafka.wire import Wire, kio_module

OLDER = {"produce": 9, "init_producer_id": 4, "add_partitions_to_txn": 3, "add_offsets_to_txn": 3} | {
    "txn_offset_commit": 4,
    "end_txn": 4,
}
NEWER = OLDER | {"produce": 12, "init_producer_id": 5, "txn_offset_commit": 5, "end_txn": 5}

_OF_COORDINATOR = ("init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn", "end_txn")

_ids = itertools.count()


class TransactionalWire:
    """Errors are returned as numbers, so that a test can ask for what must not work."""

    def __init__(
        self,
        wire: Wire,
        *,
        newer: bool,
        id: str | None = None,
        topic: str = "t",
        coordinator: Wire | None = None,
    ) -> None:
        """`coordinator` is a connection to the broker that coordinates the id, if `wire` is not."""
        self.wire = wire
        self.coordinator = coordinator or wire
        self.id = id or f"tx-{next(_ids)}"
        self.newer = newer
        self.topic = topic
        self.versions = dict(NEWER if newer else OLDER)
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    async def _ask(self, api: str, name: str, **fields: Any) -> Any:
        version = self.versions[api]
        request = getattr(kio_module(f"{api}.v{version}.request"), f"{name}Request")
        response = getattr(kio_module(f"{api}.v{version}.response"), f"{name}Response")
        wire = self.coordinator if api in _OF_COORDINATOR else self.wire
        return await wire.ask_kio(request(**fields), response)

    def _kind(self, api: str, name: str) -> Any:
        return getattr(kio_module(f"{api}.v{self.versions[api]}.request"), name)

    async def init(self, *, timeout: float = 60, keep: bool = False) -> int:
        who = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if keep else {}
        answer = await self._ask(
            "init_producer_id",
            "InitProducerId",
            transactional_id=self.id,
            transaction_timeout=datetime.timedelta(seconds=timeout),
            **who,
        )
        if not answer.error_code:
            self._be(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def _be(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    async def add(self, *partitions: int, topic: str | None = None) -> list[int]:
        kind = self._kind("add_partitions_to_txn", "AddPartitionsToTxnTopic")
        answer = await self._ask(
            "add_partitions_to_txn",
            "AddPartitionsToTxn",
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(kind(name=topic or self.topic, partitions=partitions),),
        )
        [result] = answer.results_by_topic_v3_and_below
        return [int(each.partition_error_code) for each in result.results_by_partition]

    def batch(self, *values: bytes, partition: int = 0, transactional: bool = True) -> bytes:
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        for value in values:
            builder.add(None, value, timestamp=1_700_000_000_000)
        return bytes(builder.build())

    async def send(self, batch: bytes, *, partition: int = 0) -> tuple[int, int]:
        """Error code and offset."""
        data = self._kind("produce", "PartitionProduceData")(index=partition, records=batch)
        answer = await self._ask(
            "produce",
            "Produce",
            transactional_id=self.id,
            acks=-1,
            timeout=datetime.timedelta(seconds=10),
            topic_data=(self._kind("produce", "TopicProduceData")(name=self.topic, partition_data=(data,)),),
        )
        [result] = answer.responses[0].partition_responses
        return int(result.error_code), result.base_offset

    async def write(self, *values: bytes, partition: int = 0) -> int:
        """Produce as part of the transaction, the way such a client does it. Must work."""
        if not self.newer:
            assert await self.add(partition) == [0]
        code, offset = await self.send(self.batch(*values, partition=partition), partition=partition)
        assert code == 0
        return offset

    async def add_group(self, group: str = "g") -> int:
        answer = await self._ask(
            "add_offsets_to_txn",
            "AddOffsetsToTxn",
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return int(answer.error_code)

    async def send_offset(self, offset: int, *, partition: int = 0, group: str = "g", **who: Any) -> int:
        place = self._kind("txn_offset_commit", "TxnOffsetCommitRequestPartition")(
            partition_index=partition, committed_offset=offset, committed_metadata="note"
        )
        topic = self._kind("txn_offset_commit", "TxnOffsetCommitRequestTopic")
        answer = await self._ask(
            "txn_offset_commit",
            "TxnOffsetCommit",
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(topic(name=self.topic, partitions=(place,)),),
            **who,
        )
        [result] = answer.topics[0].partitions
        return int(result.error_code)

    async def commit_offset(self, offset: int, *, partition: int = 0, group: str = "g") -> int:
        if not self.newer:
            assert await self.add_group(group) == 0
        return await self.send_offset(offset, partition=partition, group=group)

    async def end(self, *, commit: bool = True) -> int:
        answer = await self._ask(
            "end_txn",
            "EndTxn",
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        if self.newer and not answer.error_code:
            self._be(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)
