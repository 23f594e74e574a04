"""A Kafka client in the world: one connection that comes back, and requests with a deadline."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from posthouse.protocols.kafka.codec.generated.end_txn import EndTxnRequest, EndTxnResponse
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from posthouse.protocols.kafka.codec.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Partition
from tests.simulation.batches import Fetched, Producer, decoded
from tests.simulation.kafka_wire import KafkaWire, Lost
from tests.simulation.machine import KAFKA_PORT

T = TypeVar("T", bound=Message)

EARLIEST = -2
LATEST = -1
SECONDS = 5.0
"""How long an answer is waited for."""


class Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


class KafkaClient:
    def __init__(self) -> None:
        self._wire: KafkaWire | None = None
        self.topics: dict[str, bytes] = {}
        self.broker = ""
        """Which of several was asked last."""

    def disconnect(self) -> None:
        if self._wire is not None:
            self._wire.lose("it left")
            self._wire = None

    async def ask(self, request: Message, answer: type[T]) -> T:
        [response] = await self.ask_ahead([request], answer)
        if isinstance(response, Lost):
            raise response
        return response

    async def ask_ahead(self, requests: Sequence[Message], answer: type[T]) -> list[T | Lost]:
        """Send all, then wait for the answers."""
        try:
            if self._wire is None:
                self._wire = await KafkaWire.connect(KAFKA_PORT)
        except Lost as error:
            return [error] * len(requests)
        answers = await self.answers_of(self._wire, requests, answer)
        if self._wire is not None and self._wire.lost is not None:
            self._wire = None
        return answers

    async def answers_of(
        self, wire: KafkaWire, requests: Sequence[Message], answer: type[T]
    ) -> list[T | Lost]:
        deadline = asyncio.get_running_loop().call_later(SECONDS, wire.lose, "no answer in time")
        answers: list[T | Lost] = []
        for sent in [wire.send(request) for request in requests]:
            response = await sent
            assert isinstance(response, (answer, Lost))
            answers.append(response)
        deadline.cancel()
        return answers

    async def create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str]) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
                for name, partitions in topics.items()
            ]
        )
        response = await self.ask(request, CreateTopicsResponse)
        for topic in response.topics:
            check(topic.error_code, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def learn_topics(self, names: Sequence[str]) -> None:
        topics = [MetadataRequestTopic(name=name) for name in names]
        response = await self.ask(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse
        )
        for topic in response.topics:
            check(topic.error_code)
            assert topic.name is not None
            self.topics[topic.name] = topic.topic_id

    async def init_producer(self, transactional_id: str | None = None) -> Producer:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=20_000)
        response = await self.ask(request, InitProducerIdResponse)
        check(response.error_code)
        return Producer(response.producer_id, response.producer_epoch)

    def produce_request(
        self, batches: Mapping[Partition, bytearray], transactional_id: str | None = None
    ) -> ProduceRequest:
        by_topic: dict[bytes, list[PartitionProduceData]] = {}
        for (topic, index), batch in batches.items():
            data = PartitionProduceData(index=index, records=batch)
            by_topic.setdefault(self.topics[topic], []).append(data)
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(topic_id=id, partition_data=data) for id, data in by_topic.items()],
        )

    def produced(self, response: ProduceResponse) -> dict[Partition, int | Refused]:
        """Offsets by partition."""
        names = {id: name for name, id in self.topics.items()}
        return {
            (names[topic.topic_id], each.index): Refused(each.error_code)
            if each.error_code
            else each.base_offset
            for topic in response.responses
            for each in topic.partition_responses
        }

    async def fetch(
        self, positions: Mapping[Partition, int], *, committed_only: bool, wait_ms: int, max_bytes: int
    ) -> dict[Partition, Fetched | Refused]:
        by_topic: dict[bytes, list[FetchPartition]] = {}
        for (topic, index), position in positions.items():
            part = FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=max_bytes)
            by_topic.setdefault(self.topics[topic], []).append(part)
        request = FetchRequest(
            isolation_level=int(committed_only),
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic_id=id, partitions=parts) for id, parts in by_topic.items()],
        )
        response = await self.ask(request, FetchResponse)
        check(response.error_code)
        names = {id: name for name, id in self.topics.items()}
        found: dict[Partition, Fetched | Refused] = {}
        for answered in response.responses:
            for data in answered.partitions:
                partition = (names[answered.topic_id], data.partition_index)
                if data.error_code:
                    found[partition] = Refused(data.error_code)
                else:
                    found[partition] = decoded(data, positions[partition], committed_only)
        return found

    async def starts_of(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return await self._offsets_of(partitions, EARLIEST)

    async def ends_of(self, partitions: Sequence[Partition], *, committed_only: bool) -> dict[Partition, int]:
        """What all brokers have written, or what is decided of it."""
        return await self._offsets_of(partitions, LATEST, committed_only=committed_only)

    async def _offsets_of(
        self, partitions: Sequence[Partition], timestamp: int, *, committed_only: bool = False
    ) -> dict[Partition, int]:
        request = ListOffsetsRequest(
            isolation_level=int(committed_only),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in indexes
                    ],
                )
                for topic, indexes in _by_topic(partitions).items()
            ],
        )
        response = await self.ask(request, ListOffsetsResponse)
        offsets = {}
        for topic in response.topics:
            for found in topic.partitions:
                check(found.error_code)
                offsets[topic.name, found.partition_index] = found.offset
        return offsets

    async def delete_records(self, partition: Partition, before: int) -> None:
        topic, index = partition
        asked = DeleteRecordsPartition(partition_index=index, offset=before)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])])
        response = await self.ask(request, DeleteRecordsResponse)
        check(response.topics[0].partitions[0].error_code)

    async def commit_offsets(
        self, group: str, offsets: Mapping[Partition, int], member: str = "", generation: int = -1
    ) -> None:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topics[topic],
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=each, committed_offset=offsets[topic, each]
                        )
                        for each in indexes
                    ],
                )
                for topic, indexes in _by_topic(offsets).items()
            ],
        )
        response = await self.ask(request, OffsetCommitResponse)
        for topic in response.topics:
            for place in topic.partitions:
                check(place.error_code)

    async def committed_offsets(
        self, group: str, partitions: Sequence[Partition]
    ) -> dict[Partition, int | None]:
        topics = [
            OffsetFetchRequestTopics(name=topic, topic_id=self.topics[topic], partition_indexes=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
        )
        response = await self.ask(request, OffsetFetchResponse)
        [found] = response.groups
        check(found.error_code)
        names = {id: name for name, id in self.topics.items()}
        offsets: dict[Partition, int | None] = {}
        for topic in found.topics:
            for place in topic.partitions:
                check(place.error_code)
                offset = place.committed_offset
                offsets[names[topic.topic_id], place.partition_index] = None if offset < 0 else offset
        return offsets

    async def add_offset(
        self, id: str, producer: Producer, group: str, partition: Partition, offset: int
    ) -> None:
        """Commit a group's offset with a transaction."""
        topic, index = partition
        place = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=id,
            group_id=group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
        )
        response = await self.ask(request, TxnOffsetCommitResponse)
        check(response.topics[0].partitions[0].error_code)

    async def end_transaction(self, id: str, producer: Producer, *, commit: bool) -> Producer:
        request = EndTxnRequest(
            transactional_id=id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        response = await self.ask(request, EndTxnResponse)
        check(response.error_code)
        return Producer(response.producer_id, response.producer_epoch)


def check(code: int, *also: ErrorCode) -> None:
    if code and code not in also:
        raise Refused(code)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics
