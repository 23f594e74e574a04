"""Fetch from consumers in other racks: which broker they are sent to, and what the answer says."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from posthouse.app import App
from posthouse.broker.topics import NewTopic
from posthouse.model.topics import Topic
from posthouse.protocols.kafka import read_replicas
from posthouse.protocols.kafka.codec.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from posthouse.protocols.kafka.codec.generated.fetch import FetchRequest, FetchResponse, PartitionData
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.leaders import Placement
from tests.protocols.kafka.members import COORDINATOR, OTHER, OWN, VIEW, HeldRelay, Standing, member
from tests.protocols.kafka.wire import Wire, batch, fetch_request, kio_module

_PARTITIONS = 4
_RACKS: dict[int, str | None] = {OWN.id: "east", COORDINATOR.id: "west", OTHER.id: "west"}
_VIEW = replace(
    VIEW, brokers=tuple(replace(each, rack=_RACKS[each.id]) for each in (OWN, COORDINATOR, OTHER))
)


@pytest.fixture
async def standing() -> Standing:
    return Standing(view=_VIEW)


@pytest.fixture
async def app(standing: Standing) -> AsyncIterator[App]:
    async with member(HeldRelay(), standing, own=replace(OWN, rack="east"), rack="east") as running:
        yield running


@pytest.fixture
async def topic(app: App) -> Topic:
    [created] = await app.broker.create_topics([NewTopic(name="t", partitions=_PARTITIONS)])
    assert isinstance(created, Topic)
    return created


@pytest.fixture
async def wire(app: App, topic: Topic) -> AsyncIterator[Wire]:
    """Each partition has a record."""
    async with Wire(str(app.listeners["kafka"])) as connected:
        for partition in range(_PARTITIONS):
            await connected.produce(topic.id, batch(b"x"), partition=partition)
        yield connected


def _fetch_of(topic: Topic, rack: str, offset: int = 0, **fields: int) -> FetchRequest:
    """All partitions; it would wait for a minute."""
    partitions = [(topic.id, partition, offset) for partition in range(_PARTITIONS)]
    request = fetch_request(*partitions, **{"min_bytes": 10_000, "max_wait_ms": 60_000, **fields})
    request.rack_id = rack
    return request


async def _fetched(wire: Wire, request: FetchRequest) -> list[PartitionData]:
    answer = await asyncio.wait_for(wire.ask(request, FetchResponse), 30)
    assert answer.error_code == 0
    return [each.partitions[0] for each in answer.responses]


def _of_west(topic: Topic) -> list[int | None]:
    placement = Placement(_RACKS)
    return [placement.of_rack("west", each) for each in placement.of(topic.id, _PARTITIONS)]


async def test_a_consumer_of_another_rack_is_sent_there_at_once_without_records(
    wire: Wire, topic: Topic
) -> None:
    found = await _fetched(wire, _fetch_of(topic, "west"))
    assert [each.preferred_read_replica for each in found] == _of_west(topic)
    assert [each.error_code for each in found] == [0] * _PARTITIONS
    assert [bytes(each.records or b"") for each in found] == [b""] * _PARTITIONS
    assert {(each.high_watermark, each.last_stable_offset, each.log_start_offset) for each in found} == {
        (1, 1, 0)
    }


@pytest.mark.parametrize("rack", ["", "east", "nowhere"])
async def test_all_others_are_served(rack: str, wire: Wire, topic: Topic) -> None:
    found = await _fetched(wire, _fetch_of(topic, rack, min_bytes=1))
    assert {each.preferred_read_replica for each in found} == {-1}
    assert all(each.records for each in found)


async def test_a_consumer_that_waits_here_is_woken_by_records(wire: Wire, app: App, topic: Topic) -> None:
    pending = wire.send(_fetch_of(topic, "east", offset=1, min_bytes=1))
    async with Wire(str(app.listeners["kafka"])) as other:
        await other.produce(topic.id, batch(b"y"), partition=2)
    answer = await asyncio.wait_for(wire.receive(pending), 30)
    assert isinstance(answer, FetchResponse)
    assert [bool(each.partitions[0].records) for each in answer.responses] == [False, False, True, False]


async def test_a_consumer_that_keeps_coming_back_is_served(
    wire: Wire, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not know that broker, or not reach it."""
    monkeypatch.setattr(read_replicas, "AT_ONCE_SECONDS", 60.0)
    for _ in range(read_replicas.MOST_TIMES):
        found = await _fetched(wire, _fetch_of(topic, "west"))
        assert [each.preferred_read_replica for each in found] == _of_west(topic)
    found = await _fetched(wire, _fetch_of(topic, "west", min_bytes=1))
    assert all(each.records and each.preferred_read_replica == -1 for each in found)


async def test_a_consumer_that_comes_back_is_sent_to_another_broker(
    wire: Wire, topic: Topic, standing: Standing
) -> None:
    before = [each.preferred_read_replica for each in await _fetched(wire, _fetch_of(topic, "west"))]
    standing.view = replace(_VIEW, brokers=tuple(each for each in _VIEW.brokers if each.id != before[0]))
    after = [each.preferred_read_replica for each in await _fetched(wire, _fetch_of(topic, "west"))]
    assert after[0] not in (before[0], -1)


async def test_the_oldest_version_with_racks(wire: Wire, topic: Topic) -> None:
    v11 = kio_module("fetch.v11.request")
    partition = v11.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=2**20)
    request = v11.FetchRequest(
        max_wait=datetime.timedelta(minutes=1),
        min_bytes=1,
        topics=(v11.FetchTopic(topic="t", partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id="west",
    )
    asked = wire.ask_kio(request, kio_module("fetch.v11.response").FetchResponse)
    [found] = (await asyncio.wait_for(asked, 30)).responses[0].partitions
    assert found.preferred_read_replica == _of_west(topic)[1]
    assert not found.records


async def test_an_offset_out_of_range_is_refused_and_sent_nowhere(wire: Wire, topic: Topic) -> None:
    found = await _fetched(wire, _fetch_of(topic, "west", offset=7))
    assert {(each.error_code, each.preferred_read_replica) for each in found} == {
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    }


async def test_consumers_are_served_where_they_are_when_their_rack_is_lost(
    wire: Wire, topic: Topic, standing: Standing
) -> None:
    left = OTHER.id
    standing.view = replace(_VIEW, brokers=tuple(each for each in _VIEW.brokers if each.id != COORDINATOR.id))
    found = await _fetched(wire, _fetch_of(topic, "west"))
    assert {each.preferred_read_replica for each in found} == {left}
    standing.view = replace(_VIEW, brokers=_VIEW.brokers[:1])
    found = await _fetched(wire, _fetch_of(topic, "west", min_bytes=1))
    assert all(each.records and each.preferred_read_replica == -1 for each in found)


async def test_a_broker_that_is_cut_off_serves(wire: Wire, topic: Topic, standing: Standing) -> None:
    standing.is_cut_off = True
    found = await _fetched(wire, _fetch_of(topic, "west", min_bytes=1))
    assert all(each.records and each.preferred_read_replica == -1 for each in found)


async def test_clients_are_told_of_the_replica_in_every_rack(wire: Wire, topic: Topic) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    answer = await wire.ask(asked, MetadataResponse)
    assert {each.node_id: each.rack for each in answer.brokers} == _RACKS
    told = answer.topics[0].partitions
    expected = [list(each) for each in Placement(_RACKS).of(topic.id, _PARTITIONS)]
    assert [each.replica_nodes for each in told] == [each.isr_nodes for each in told] == expected
    assert [each.leader_id for each in told] == [each[0] for each in expected]
    described = await wire.ask(
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=10),
        DescribeTopicPartitionsResponse,
    )
    pages = described.topics[0].partitions
    assert [each.replica_nodes for each in pages] == [each.isr_nodes for each in pages] == expected
    assert [each.leader_id for each in pages] == [each[0] for each in expected]
