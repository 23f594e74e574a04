"""A Kafka client that does what it is told: raw frames, our codec's newest version, or any that kio has."""

import asyncio
import io
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any, Self, cast

from kio.serial import entity_reader, entity_writer

from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.settings import Address
from tests.wire.kafka import SIZE, PendingRequest, RequestEncoder, ResponseT


def batch(*values: bytes | None, codec: Codec = Codec.NONE, timestamp: int = 1_700_000_000_000) -> bytearray:
    """A record batch; the records' timestamps count up by one from `timestamp`."""
    builder = BatchBuilder(codec)
    for index, value in enumerate(values):
        builder.add(None, value, timestamp=timestamp + index)
    return builder.build()


def batch_of(producer_id: int, sequence: int = 0, *, epoch: int = 0) -> bytearray:
    """One record of a producer."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    builder.add(None, b"value", timestamp=1_700_000_000_000)
    return builder.build()


def kio_module(name: str) -> Any:
    """A module of kio's schemas. Not typed: kio has a type for each width of integer."""
    return import_module(f"kio.schema.{name}")


@dataclass(frozen=True)
class OnlyCode:
    """What is read of an answer that kio cannot read."""

    error_code: int


_TIMES_OF_TOKENS = frozenset({38, 39, 40})
"""Kafka answers with the time -1 where there is no token; kio refuses to read that."""


class Wire:
    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        self._address = Address.parse(address)
        self._tls = tls
        self._requests = RequestEncoder("test")

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(
            self._address.host, self._address.port, limit=2**20, ssl=self._tls
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.writer.close()

    def send(self, request: Message) -> PendingRequest:
        """Write without waiting for the answer; returns what `receive` needs to read it."""
        chunks, pending = self._requests.encode(request)
        self.writer.writelines(chunks)
        return pending

    async def receive(self, pending: PendingRequest) -> Message:
        return pending.response(memoryview(await self.receive_frame()), Message)

    async def ask(self, request: Message, response: type[ResponseT]) -> ResponseT:
        pending = self.send(request)
        return pending.response(memoryview(await self.receive_frame()), response)

    async def ask_kio(self, request: Any, response: type[Any]) -> Any:
        """`request` is an entity of kio, which decides the version; so is the answer."""
        stream = io.BytesIO()
        entity_writer(type(request))(stream, request)
        chunks, pending = self._requests.encode_body(
            request.__api_key__, request.__version__, [stream.getvalue()]
        )
        self.writer.writelines(chunks)
        payload = memoryview(await self.receive_frame())
        body = bytes(payload[pending.body_start(payload) :])
        if pending.api_key in _TIMES_OF_TOKENS:
            return OnlyCode(error_code=int.from_bytes(body[:2], "big", signed=True))
        value, size = entity_reader(response)(body, 0)
        assert size == len(body)
        return value

    async def receive_frame(self) -> bytes:
        (size,) = SIZE.unpack(await self.reader.readexactly(SIZE.size))
        return await self.reader.readexactly(size)

    async def create_topic(self, name: str = "t", partitions: int = 1, **configs: str) -> bytes:
        """Returns the topic's id. Settings are given with underscores."""
        answer = await self.ask(create_topic_request(name, partitions, configs), CreateTopicsResponse)
        [topic] = answer.topics
        assert topic.error_code == 0, topic.error_message
        return topic.topic_id

    async def produce(
        self, topic_id: bytes, records: bytes | bytearray | None, *, partition: int = 0, acks: int = -1
    ) -> PartitionProduceResponse:
        answer = await self.ask(produce_request(topic_id, records, partition, acks), ProduceResponse)
        return answer.responses[0].partition_responses[0]

    async def fetch(self, topic_id: bytes, offset: int = 0, **fields: int) -> PartitionData:
        answer = await self.ask(fetch_request((topic_id, 0, offset), **fields), FetchResponse)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]


def create_topic_request(name: str, partitions: int, configs: Mapping[str, str]) -> CreateTopicsRequest:
    """Settings are given with underscores."""
    settings = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def produce_request(
    topic_id: bytes, records: bytes | bytearray | None, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])],
    )


def fetch_request(*wanted: tuple[bytes, int, int], **fields: int) -> FetchRequest:
    """`wanted` are topic id, partition and offset; `partition_max_bytes` and others may be given."""
    partition_max_bytes = fields.pop("partition_max_bytes", 2**20)
    epoch = fields.pop("current_leader_epoch", -1)
    return FetchRequest(
        **cast("dict[str, Any]", fields),
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=epoch,
                    )
                ],
            )
            for topic_id, partition, offset in wanted
        ],
    )
