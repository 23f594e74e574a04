"""Order, pipelining and back-pressure of a connection."""

import asyncio
import struct

import pytest

from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest
from posthouse.protocols.kafka.codec.generated.fetch import FetchResponse
from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.connection import KafkaConnection
from posthouse.protocols.pace import SLOW_SECONDS
from posthouse.testing import AsyncBroker
from tests.alarms import alarms
from tests.protocols.kafka.wire import Wire, batch, fetch_request, produce_request

MIB = 1024 * 1024


def connections(broker: AsyncBroker) -> list[KafkaConnection]:
    return [each for each in broker.app.connections if isinstance(each, KafkaConnection)]


async def paused_connection(broker: AsyncBroker) -> KafkaConnection:
    while True:
        for each in connections(broker):
            if each._flow.is_paused:
                return each
        await asyncio.sleep(0.001)


async def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    topic = await wire.create_topic()
    sent = []
    for index in range(300):
        sent.append(wire.send(produce_request(topic, batch(b"%d" % index))))
        if index % 10 == 0:
            sent.append(wire.send(MetadataRequest()))
    answers = [await wire.receive(each) for each in sent]
    offsets = [
        answer.responses[0].partition_responses[0].base_offset
        for answer in answers
        if isinstance(answer, ProduceResponse)
    ]
    assert offsets == list(range(300))
    assert sum(isinstance(answer, MetadataResponse) for answer in answers) == 30


async def test_a_request_sees_what_those_before_it_did(wire: Wire) -> None:
    """Nothing is awaited between a create, a produce and a fetch: order alone must do."""
    topic = await wire.create_topic()
    produced = wire.send(produce_request(topic, batch(b"x")))
    fetched = wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=10_000))
    await wire.receive(produced)
    answer = await wire.receive(fetched)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].high_watermark == 1


async def test_a_parked_fetch_blocks_nobody_else(broker: AsyncBroker, wire: Wire) -> None:
    topic = await wire.create_topic()
    parked = wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=60_000))
    async with Wire(broker.kafka) as other:
        assert (await other.produce(topic, batch(b"x"))).base_offset == 0
    answer = await asyncio.wait_for(wire.receive(parked), 30)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].records


async def test_the_long_poll_of_a_closed_connection_ends(broker: AsyncBroker) -> None:
    async with Wire(broker.kafka) as wire:
        topic = await wire.create_topic()
        wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=3_600_000))
        wire.send(MetadataRequest())
        await wire.writer.drain()
        waiters = broker.app.broker._long_poll._waiters
        while not waiters:
            await asyncio.sleep(0.001)
    while waiters:
        await asyncio.sleep(0.001)


async def test_a_client_that_does_not_read_is_not_buffered_for() -> None:
    """Each answer is 1 MiB and nobody takes it; what the broker holds must stay near the limit."""
    async with AsyncBroker(connection_buffer_bytes=2 * MIB) as broker, Wire(broker.kafka) as wire:
        topic = await wire.create_topic(max_message_bytes="2000000")
        await wire.produce(topic, batch(b"x" * MIB))
        sent = [wire.send(fetch_request((topic, 0, 0))) for _ in range(200)]
        # Another connection gets its answers, and meanwhile the first is as far as it comes.
        async with Wire(broker.kafka) as other:
            for _ in range(50):
                await other.fetch(topic)
        [connection] = [each for each in connections(broker) if each._outbox.is_congested]
        assert connection._transport.get_write_buffer_size() < 4 * MIB
        assert connection._flow.in_flight < 2 * MIB
        for each in sent:
            answer = await wire.receive(each)
            assert isinstance(answer, FetchResponse)
            assert len(answer.responses[0].partitions[0].records or b"") > MIB


async def test_requests_beyond_the_limit_are_not_read() -> None:
    """Many requests behind one that is parked: the sender is stopped, and all are answered in the end."""
    async with AsyncBroker(connection_buffer_bytes=64 * 1024) as broker, Wire(broker.kafka) as wire:
        topic = await wire.create_topic()
        parked = wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=60_000))
        sent = [wire.send(produce_request(topic, batch(b"y" * 10_000))) for _ in range(2000)]
        async with Wire(broker.kafka) as other:
            connection = await paused_connection(broker)
            assert connection._flow.is_paused
            assert connection._flow.in_flight < 64 * 1024 + 3 * 64 * 1024
            await other.produce(topic, batch(b"x"))
        await wire.receive(parked)
        for each in sent:
            await wire.receive(each)
        assert not connection._flow.is_paused


async def test_one_request_beyond_the_limit_passes() -> None:
    async with AsyncBroker(connection_buffer_bytes=1000) as broker, Wire(broker.kafka) as wire:
        topic = await wire.create_topic(max_message_bytes="20000000")
        assert (await wire.produce(topic, batch(b"x" * 10 * MIB))).base_offset == 0
        found = await wire.fetch(topic, partition_max_bytes=1)
        assert len(found.records or b"") > 10 * MIB


async def test_many_silent_connections() -> None:
    async with AsyncBroker() as broker:
        wires = [Wire(broker.kafka) for _ in range(200)]
        for each in wires:
            await each.__aenter__()
        for each in wires:
            each.writer.write(b"\0\0")
        await wires[7].writer.drain()
        async with Wire(broker.kafka) as wire:
            await wire.create_topic()
        for each in wires:
            each.writer.close()


async def test_more_connections_than_allowed_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncBroker(max_connections=2) as broker:
        async with Wire(broker.kafka) as first, Wire(broker.kafka) as second:
            await first.create_topic()
            await second.ask(MetadataRequest(), MetadataResponse)
            async with Wire(broker.kafka) as third:
                assert await third.reader.read() == b""
            await first.ask(MetadataRequest(), MetadataResponse)
        [record] = alarms(caplog)
        assert "all 2 are taken" in record.message
        while broker.app.connections:
            await asyncio.sleep(0.001)
        async with Wire(broker.kafka) as again:
            await again.ask(MetadataRequest(), MetadataResponse)


async def test_a_stop_answers_what_is_in_flight() -> None:
    async with AsyncBroker() as broker:
        wire = await Wire(broker.kafka).__aenter__()
        topic = await wire.create_topic()
        parked = wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=60_000))
        while not broker.app.broker._long_poll._waiters:
            await asyncio.sleep(0.001)
    answer = await wire.receive(parked)
    assert isinstance(answer, FetchResponse)
    assert await wire.reader.read() == b""
    wire.writer.close()


async def test_a_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    async with AsyncBroker(shutdown_seconds=0.2, connection_buffer_bytes=1000) as broker:
        wire = await Wire(broker.kafka).__aenter__()
        topic = await wire.create_topic(max_message_bytes="20000000")
        await wire.produce(topic, batch(b"x" * 16 * MIB))
        wire.send(fetch_request((topic, 0, 0), max_bytes=2**30, partition_max_bytes=2**30))
        await paused_connection(broker)
    wire.writer.transport.abort()


async def test_half_closed(broker: AsyncBroker) -> None:
    async with Wire(broker.kafka) as wire:
        wire.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        wire.writer.write_eof()
        await wire.reader.read()


async def test_a_request_that_comes_in_drops_is_not_waited_for() -> None:
    async with AsyncBroker() as broker, Wire(broker.kafka) as good, Wire(broker.kafka) as slow:
        await good.ask(MetadataRequest(), MetadataResponse)
        await slow.ask(MetadataRequest(), MetadataResponse)
        slow.writer.write(struct.pack(">i", 1000) + b"begun")
        [listener] = [each.listener for each in broker.app._served if each.name == "kafka"]
        while not any(connection._reader.in_frame for connection in connections(broker)):
            await asyncio.sleep(0)
        for _ in range(SLOW_SECONDS + 1):
            listener.sweep()
        assert await slow.reader.read() == b""
        await good.ask(MetadataRequest(), MetadataResponse)
