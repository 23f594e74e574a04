"""Very many topics: the same bytes as the codec makes in one go, and others have their turns meanwhile."""

import asyncio

import pytest

from bench.scale.asking import connected, make_topics, metadata
from posthouse.protocols.kafka import many_topics
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    encode_metadata_response,
)
from posthouse.protocols.kafka.codec.primitives import Buffer
from posthouse.protocols.kafka.codec.registry import APIS
from posthouse.protocols.kafka.many_topics import STRETCH, ManyTopics, encode, take_topics
from posthouse.testing import AsyncBroker

VERSIONS = range(APIS[3].min_version, APIS[3].max_version + 1)


def topics(count: int, partitions: int = 1) -> list[MetadataResponseTopic]:
    parts = [
        MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        for index in range(partitions)
    ]
    return [
        MetadataResponseTopic(name=f"topic-{number}", topic_id=number.to_bytes(16, "big"), partitions=parts)
        for number in range(count)
    ]


def filled(response: MetadataResponse) -> MetadataResponse:
    response.brokers = [MetadataResponseBroker(node_id=1, host="localhost", port=9092)]
    response.cluster_id = "some-cluster"
    response.controller_id = 1
    response.throttle_time_ms = 7
    return response


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 3 * STRETCH, 20_000])
async def test_the_bytes_are_those_of_the_codec(version: int, count: int) -> None:
    response = ManyTopics()
    await take_topics(response, version, iter(topics(count)))
    spliced = b"".join(encode(version, filled(response)))
    assert spliced == b"".join(
        encode_metadata_response(version, filled(MetadataResponse(topics=topics(count))))
    )


async def test_few_topics_are_left_to_the_codec() -> None:
    response = filled(MetadataResponse(topics=topics(3)))
    assert encode(13, response) == encode_metadata_response(13, response)


@pytest.mark.parametrize(("count", "partitions"), [(10 * STRETCH, 0), (10, STRETCH)])
async def test_others_have_turns_in_between(
    count: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither many topics nor many partitions are encoded in one go."""
    turns = 0
    seen: list[int] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def noting(version: int, response: MetadataResponse) -> list[Buffer]:
        seen.append(turns)
        return encode_metadata_response(version, response)

    monkeypatch.setattr(many_topics, "encode_metadata_response", noting)
    task = asyncio.create_task(others())
    await take_topics(ManyTopics(), 13, topics(count, partitions))
    task.cancel()
    assert len(set(seen)) == 10


async def test_a_client_hears_of_all_topics_and_of_those_it_names() -> None:
    names = [f"topic-{number:04d}" for number in range(3 * STRETCH)]

    def ask(port: int) -> tuple[MetadataResponse, MetadataResponse]:
        with connected(port) as connection:
            make_topics(connection, names)
            return metadata(connection, None), metadata(connection, [*names, "missing"])

    async with AsyncBroker() as broker:
        everything, named = await asyncio.to_thread(ask, int(broker.kafka.rpartition(":")[2]))
    assert [topic.name for topic in everything.topics] == names
    assert everything.cluster_id and len(everything.brokers) == 1
    assert [topic.name for topic in named.topics] == [*names, "missing"]
    assert [topic.error_code != 0 for topic in named.topics] == [False] * len(names) + [True]
