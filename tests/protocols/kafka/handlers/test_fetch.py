"""Fetch: whole batches within limits, or a wait for some."""

import asyncio
import datetime
import time

import pytest

from posthouse.protocols.kafka.codec.generated.fetch import FetchRequest, FetchResponse
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.records.batch import iter_headers
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch, fetch_request, kio_module


def bases(records: object) -> list[int]:
    assert isinstance(records, bytes | bytearray | memoryview)
    return [header.base_offset for _, header in iter_headers(records)]


async def test_the_whole_batch_that_holds_the_offset(wire: Wire) -> None:
    topic = await wire.create_topic()
    await wire.produce(topic, batch(b"a", b"b", b"c"))
    await wire.produce(topic, batch(b"d", b"e"))
    found = await wire.fetch(topic, 1)
    assert bases(found.records) == [0, 3]
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (5, 5, 0)
    assert bases((await wire.fetch(topic, 4)).records) == [3]
    assert bases((await wire.fetch(topic, 5)).records) == []


@pytest.mark.parametrize("offset", [-1, 2, 100, 2**62])
async def test_out_of_range(offset: int, wire: Wire) -> None:
    topic = await wire.create_topic()
    await wire.produce(topic, batch(b"a"))
    started = time.monotonic()
    found = await wire.fetch(topic, offset, min_bytes=1, max_wait_ms=60_000)
    assert time.monotonic() - started < 30
    assert (found.error_code, found.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_unknown_places_answer_at_once(wire: Wire) -> None:
    topic = await wire.create_topic()
    request = fetch_request((topic, 9, 0), (b"u" * 16, 0, 0), min_bytes=1, max_wait_ms=60_000)
    answer = await asyncio.wait_for(wire.ask(request, FetchResponse), 30)
    codes = [each.partitions[0].error_code for each in answer.responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_limits(wire: Wire) -> None:
    topic = await wire.create_topic()
    one = batch(b"x" * 1000)
    for _ in range(5):
        await wire.produce(topic, one)
    size = len(one)
    assert bases((await wire.fetch(topic, partition_max_bytes=1)).records) == [0]
    assert bases((await wire.fetch(topic, max_bytes=1)).records) == [0]
    assert bases((await wire.fetch(topic, max_bytes=0)).records) == [0]
    assert bases((await wire.fetch(topic, partition_max_bytes=3 * size)).records) == [0, 1, 2]
    assert bases((await wire.fetch(topic, max_bytes=3 * size - 1)).records) == [0, 1]


async def test_only_the_first_partition_with_records_may_exceed_the_limits(wire: Wire) -> None:
    topic = await wire.create_topic(partitions=3)
    await wire.produce(topic, batch(b"x" * 1000), partition=1)
    await wire.produce(topic, batch(b"y" * 1000), partition=2)
    wanted = [(topic, index, 0) for index in range(3)]
    for limits in ({"max_bytes": 10}, {"partition_max_bytes": 10}):
        answer = await wire.ask(fetch_request(*wanted, **limits), FetchResponse)
        assert [bases(each.partitions[0].records) for each in answer.responses] == [[], [0], []]
        assert answer.responses[2].partitions[0].high_watermark == 1
    answer = await wire.ask(fetch_request(*wanted), FetchResponse)
    assert [bases(each.partitions[0].records) for each in answer.responses] == [[], [0], [0]]


async def test_waits_until_there_is_something(broker: AsyncBroker, wire: Wire) -> None:
    topic = await wire.create_topic(partitions=2)
    waiting = wire.send(fetch_request((topic, 0, 0), (topic, 1, 0), min_bytes=1, max_wait_ms=60_000))
    async with Wire(broker.kafka) as other:
        await other.produce(topic, batch(b"x"), partition=1)
    answer = await asyncio.wait_for(wire.receive(waiting), 30)
    assert isinstance(answer, FetchResponse)
    assert [bases(each.partitions[0].records) for each in answer.responses] == [[], [0]]


async def test_waits_until_there_is_enough(broker: AsyncBroker, wire: Wire) -> None:
    topic = await wire.create_topic()
    one = batch(b"x" * 1000)
    await wire.produce(topic, one)
    waiting = wire.send(fetch_request((topic, 0, 0), min_bytes=3 * len(one), max_wait_ms=60_000))
    async with Wire(broker.kafka) as other:
        for _ in range(2):
            await other.produce(topic, one)
    answer = await asyncio.wait_for(wire.receive(waiting), 30)
    assert isinstance(answer, FetchResponse)
    assert bases(answer.responses[0].partitions[0].records) == [0, 1, 2]


async def test_waits_no_longer_than_asked(wire: Wire) -> None:
    topic = await wire.create_topic()
    await wire.produce(topic, batch(b"x"))
    started = time.monotonic()
    found = await wire.fetch(topic, min_bytes=10_000, max_wait_ms=50)
    assert 0.04 < time.monotonic() - started < 10
    assert bases(found.records) == [0]


async def test_does_not_wait_when_nothing_is_asked_of_it(wire: Wire) -> None:
    topic = await wire.create_topic()
    assert (await wire.fetch(topic, min_bytes=0, max_wait_ms=60_000)).error_code == 0
    answer = await wire.ask(FetchRequest(min_bytes=1, max_wait_ms=60_000), FetchResponse)
    assert answer.responses == []


async def test_a_wait_ends_when_the_topic_goes(broker: AsyncBroker, wire: Wire) -> None:
    topic = await wire.create_topic()
    waiting = wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=60_000))
    while not broker.app.broker._long_poll._waiters:
        await asyncio.sleep(0.001)
    await broker.app.broker.delete_topics([broker.app.broker.topic("t")])
    answer = await asyncio.wait_for(wire.receive(waiting), 30)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
async def test_leader_epochs(epoch: int, code: ErrorCode, wire: Wire) -> None:
    topic = await wire.create_topic()
    assert (await wire.fetch(topic, current_leader_epoch=epoch)).error_code == code


async def test_sessions_are_declined(wire: Wire) -> None:
    topic = await wire.create_topic()
    first = await wire.ask(fetch_request((topic, 0, 0), session_epoch=0), FetchResponse)
    assert (first.error_code, first.session_id, len(first.responses)) == (0, 0, 1)
    next_one = await wire.ask(fetch_request(session_id=7, session_epoch=3), FetchResponse)
    assert (next_one.error_code, next_one.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


async def test_read_committed_has_an_empty_list_of_aborted_transactions(wire: Wire) -> None:
    topic = await wire.create_topic()
    assert (await wire.fetch(topic, isolation_level=1)).aborted_transactions == []
    assert (await wire.fetch(topic, isolation_level=0)).aborted_transactions is None


async def test_old_versions_use_names(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    await wire.produce(topic, batch(b"x"))
    v7 = kio_module("fetch.v7.request")
    partition = v7.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = v7.FetchRequest(
        replica_id=-1,
        max_wait=datetime.timedelta(),
        min_bytes=0,
        isolation_level=0,
        topics=(v7.FetchTopic(topic="t", partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    answer = await wire.ask_kio(request, kio_module("fetch.v7.response").FetchResponse)
    assert answer.responses[0].topic == "t"
    assert bases(answer.responses[0].partitions[0].records) == [0]
