"""A holder that cannot reach the database: another broker may have taken over by now."""

import asyncio
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from posthouse.protocols.kafka.codec.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from posthouse.protocols.kafka.codec.generated.fetch import FetchResponse
from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.protocols.kafka.codec.primitives import Buffer
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from tests.cluster.coordinator_app import WITH_ANOTHER, coordinator_app
from tests.cluster.cuttable import cuttable
from tests.cluster.nodes import coordinates, is_closed, node, until
from tests.protocols.kafka.handlers.group_wire import join_request
from tests.protocols.kafka.wire import Wire, fetch_request


async def test_a_producer_goes_on_with_the_broker_that_took_over(url: str) -> None:
    async with cuttable(url) as (way, address):
        first, second = node(address, "a"), node(url, "b")
        await first.start()
        await second.start()
        await until(lambda: len(first.view.brokers) == 2)
        both = ",".join(str(each.listeners["kafka"]) for each in (first, second))
        producer = Producer({"bootstrap.servers": both, "message.timeout.ms": 60_000})
        done: list[object] = []

        def produce() -> None:
            producer.produce("t", b"x", on_delivery=lambda error, message: done.append(error))

        try:
            produce()
            await asyncio.to_thread(producer.flush, 20)
            assert done == [None]
            way.cut()
            await until(coordinates(second))
            lease = first.parts.life.lease
            assert lease is not None
            assert lease.is_cut_off
            produce()
            await asyncio.to_thread(producer.flush, 20)
            assert done == [None, None]
            assert lease.is_cut_off
        finally:
            way.mend()
            await first.stop()
            await second.stop()


async def test_a_producer_that_begins_while_the_broker_is_cut_off_keeps_its_order(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cuttable(url) as (way, address):
        alone = node(address, "a")
        await alone.start()
        try:
            async with Wire(str(alone.listeners["kafka"])) as wire:
                topic = await wire.create_topic("t", 2)
            producer = Producer(
                {
                    "bootstrap.servers": str(alone.listeners["kafka"]),
                    "enable.idempotence": True,
                    "batch.num.messages": 1,
                    "linger.ms": 0,
                    "message.timeout.ms": 60_000,
                }
            )
            producer.produce("t", b"x", partition=0)  # it gets a producer id, and looks for the topic
            assert await asyncio.to_thread(producer.flush, 30) == 0
            way.cut()
            lease = alone.parts.life.lease
            assert lease is not None
            await until(lambda: lease.is_cut_off and not lease.is_valid, 30)
            values = [b"%d" % number for number in range(20)]
            for value in values:
                producer.produce("t", value, partition=1)
            await until(lambda: "the first batch of a producer is refused" in caplog.text, 30)
            way.mend()
            assert await asyncio.to_thread(producer.flush, 60) == 0
            async with Wire(str(alone.listeners["kafka"])) as wire:
                fetched = await wire.ask(fetch_request((topic, 1, 0)), FetchResponse)
                assert _values(fetched.responses[0].partitions[0].records) == values
        finally:
            way.mend()
            await alone.stop()


def _values(stored: Buffer | None) -> list[bytes | None]:
    assert stored is not None
    batches = [memoryview(stored)[pos : pos + header.length] for pos, header in iter_headers(stored)]
    return [record.value for each in batches for record in iter_records(each)]


@pytest.mark.parametrize("asked", [MetadataRequest(), DescribeClusterRequest()])
async def test_it_does_not_name_itself_as_the_leader_if_there_are_others(asked: Any) -> None:
    async with coordinator_app(WITH_ANOTHER) as (app, lease), Wire(str(app.listeners["kafka"])) as wire:
        assert await wire.ask(MetadataRequest(), MetadataResponse)
        lease.cut_off()
        wire.send(asked)
        assert await asyncio.wait_for(wire.reader.read(), 5) == b""


async def test_it_answers_who_leads_if_there_are_no_others() -> None:
    async with coordinator_app() as (app, lease), Wire(str(app.listeners["kafka"])) as wire:
        lease.cut_off()
        assert (await wire.ask(MetadataRequest(), MetadataResponse)).controller_id == 1
        assert (await wire.ask(DescribeClusterRequest(), DescribeClusterResponse)).controller_id == 1


async def test_a_request_that_waited_is_not_answered_any_more() -> None:
    async with (
        coordinator_app(group_initial_rebalance_ms=500) as (app, lease),
        Wire(str(app.listeners["kafka"])) as wire,
    ):
        joining = join_request("g", "", group_instance_id="i")  # a static member gets its place at once
        wire.send(joining)
        await asyncio.sleep(0.1)
        lease.cut_off()
        assert await asyncio.wait_for(wire.reader.read(), 5) == b""


async def test_silent_connections_end_with_the_lease() -> None:
    async with coordinator_app() as (app, lease):
        amqp = app.listeners["amqp"]
        reader, writer = await asyncio.open_connection(amqp.host, amqp.port)
        writer.write(b"AMQP\x00\x00\x09\x01")
        assert await reader.read(4096)
        async with Wire(str(app.listeners["kafka"])) as wire:
            await wire.ask(MetadataRequest(), MetadataResponse)
            lease.cut_off()
            await asyncio.wait_for(is_closed(reader), 5)
            assert await wire.ask(MetadataRequest(), MetadataResponse)
            lease.is_cut_off = False
            await asyncio.wait_for(is_closed(wire.reader), 5)
        writer.close()


async def test_http_reads_and_does_not_change() -> None:
    async with coordinator_app() as (app, lease), httpx.AsyncClient() as http:
        topics = f"http://{app.listeners['admin']}/v1/topics"
        assert (await http.post(topics, json={"name": "t"})).status_code == 201
        lease.cut_off()
        answer = await http.post(topics, json={"name": "u"})
        assert answer.status_code == 503
        assert "nothing can be changed" in answer.json()["detail"]
        found = await http.get(topics)
        assert found.status_code == 200
        assert '"t"' in found.text
        assert '"u"' not in found.text
