"""A topic as server-sent events: every record once, over any number of connections."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Entity, Quota
from posthouse.broker.appending import Produced
from posthouse.protocols.admin import record_stream
from posthouse.protocols.admin.open_streams import OpenStreams
from posthouse.protocols.admin.problems import Problem
from posthouse.records.batch import HEADER_SIZE
from posthouse.records.builder import attributes_of, write_header
from posthouse.records.compression import Codec
from posthouse.testing import AsyncBroker
from tests.protocols.admin import transactional
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.admin.event_source import EventSource, listening

ORDERS = "/v1/topics/orders/records"
STREAM = f"{ORDERS}/stream"


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


@pytest.fixture
async def http(broker: AsyncBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with client(broker) as found:
        answered(await found.post("/v1/topics", json={"name": "orders", "partitions": 3}), 201)
        yield found


async def produce(http: httpx.AsyncClient, *values: str, **more: Any) -> None:
    records = [{"value": each, **more} for each in values]
    answered(await http.post(ORDERS, json=records))


async def values(source: EventSource, count: int) -> list[str]:
    return [each.data["value"] for each in await source.take(count)]


async def test_records_come_as_they_are_written(http: httpx.AsyncClient) -> None:
    await produce(http, "before", partition=0)
    async with listening(http, STREAM) as source:
        await source.until_id()
        headers = [{"name": "trace", "value": "7"}, {"name": "raw", "value": "/w==", "encoding": "base64"}]
        record = {"key": "k", "value": "é\n", "headers": headers, "partition": 1, "timestamp": 5}
        answered(await http.post(ORDERS, json=record))
        event = await source.next()
        assert event.kind == "message"
        assert event.data == {
            "partition": 1,
            "offset": 0,
            "timestamp": 5,
            "key": "k",
            "value": "é\n",
            "headers": [
                {"name": "trace", "value": "7"},
                {"name": "raw", "value": "/w==", "encoding": "base64"},
            ],
        }
        await produce(http, "next", partition=2)
        assert await values(source, 1) == ["next"]


async def test_what_was_consumed_can_be_produced_again(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    raw = {"value": "/wA=", "encoding": "base64", "key": "gA==", "key_encoding": "base64", "partition": 0}
    answered(await http.post(ORDERS, json=raw))
    async with listening(http, STREAM, begin="earliest") as source:
        event = await source.next()
        again = {name: value for name, value in event.data.items() if name != "offset"}
        answered(await http.post(ORDERS, json=again))
        assert (await source.next()).data == event.data | {"offset": 1}


async def test_a_client_that_comes_back_goes_on_without_a_gap_or_a_double(http: httpx.AsyncClient) -> None:
    async with listening(http, STREAM) as source:
        last = await source.until_id()
    seen: list[str] = []
    written = 0
    for taken in (1, 4, 7, 2, 9):
        await asyncio.gather(*(produce(http, f"{written + each}", partition=each % 3) for each in range(8)))
        written += 8
        async with listening(http, STREAM, last) as source:
            seen += await values(source, taken)
            last = source.last_id
    async with listening(http, STREAM, after=last) as source:
        seen += await values(source, written - len(seen))
    assert Counter(seen) == Counter(str(each) for each in range(written))


async def test_many_records_of_one_batch_are_cut_into_chunks(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_stream, "_CHUNK_BYTES", 500)
    wanted = [f"{each:03}" * 10 for each in range(100)]
    await produce(http, *wanted, partition=0)
    async with listening(http, STREAM, begin="earliest") as source:
        assert await values(source, 40) == wanted[:40]
        last = source.last_id
    async with listening(http, STREAM, last) as source:
        assert await values(source, 60) == wanted[40:]


async def test_where_to_begin(http: httpx.AsyncClient) -> None:
    for timestamp, value in enumerate(("a", "b", "c")):
        await produce(http, value, partition=0, timestamp=timestamp)
    async with listening(http, STREAM, begin="earliest", partition=0) as source:
        assert await values(source, 3) == ["a", "b", "c"]
    async with listening(http, STREAM, timestamp=1) as source:
        assert await values(source, 2) == ["b", "c"]


async def test_only_some_records(http: httpx.AsyncClient) -> None:
    for number in range(6):
        headers = [{"name": "n", "value": str(number)}, {"name": "colour", "value": "red"}]
        key = "even" if number % 2 == 0 else "odd"
        answered(await http.post(ORDERS, json={"key": key, "value": f"{number}", "headers": headers}))
    async with listening(http, STREAM, begin="earliest", key="odd") as source:
        assert sorted(await values(source, 3)) == ["1", "3", "5"]
    only = "n BETWEEN 2 AND 4 AND colour = 'red'"
    async with listening(http, STREAM, begin="earliest", filter=only) as source:
        assert sorted(await values(source, 3)) == ["2", "3", "4"]
    for number, tag in enumerate("abc"):
        header = {"name": "TAGS", "value": tag}
        answered(await http.post(ORDERS, json={"value": tag, "partition": number, "headers": [header]}))
    async with listening(http, STREAM, begin="earliest", tags="a || c") as source:
        assert sorted(await values(source, 2)) == ["a", "c"]
    wrong = answered(await http.get(STREAM, params={"filter": "n ="}), 400)
    assert "invalid filter" in wrong["detail"]


async def test_heartbeats_say_where_the_stream_is(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_stream, "HEARTBEAT_SECONDS", 0.05)
    await produce(http, "x", "y", partition=0, key="other")
    async with listening(http, STREAM, begin="earliest", key="none") as source:
        while "0-2" not in await source.until_id():
            pass  # what was left out is not looked at again by a client that comes back


async def test_transactions_are_seen_when_they_are_committed(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    async with listening(http, STREAM) as source:
        await source.until_id()
        aborted = await transactional.write(broker.app.broker, "one", "orders", "aborted")
        committed = await transactional.write(broker.app.broker, "two", "orders", "committed")
        await produce(http, "elsewhere", partition=1)
        assert await values(source, 1) == ["elsewhere"]
        await transactional.end(broker.app.broker, "one", aborted, commit=False)
        await transactional.end(broker.app.broker, "two", committed, commit=True)
        assert await values(source, 1) == ["committed"]


async def test_what_retention_has_removed_is_told(http: httpx.AsyncClient) -> None:
    async with listening(http, STREAM, partition=0) as source:
        last = await source.until_id()
    await produce(http, "a", "b", "c", partition=0)
    answered(await http.post("/v1/topics/orders/trim", json={"partition": 0, "before": 2}))
    async with listening(http, STREAM, last, partition=0) as source:
        event = await source.next()
        assert (event.kind, event.data) == ("lost", {"partition": 0, "first": 0, "next": 2})
        assert await values(source, 1) == ["c"]


async def test_a_batch_that_cannot_be_read_is_told_and_passed_over(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    bad = bytearray(HEADER_SIZE) + b"this is no gzip"
    write_header(
        bad,
        base_offset=0,
        attributes=attributes_of(Codec.GZIP),
        count=1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    topic = broker.app.broker.topic("orders")
    await broker.app.broker.append([Produced(topic, 0, memoryview(bad))]).wait()
    await produce(http, "good", partition=0)
    async with listening(http, STREAM, begin="earliest") as source:
        event = await source.next()
        assert (event.kind, event.data) == ("unreadable", {"partition": 0, "first": 0, "next": 1})
        assert await values(source, 1) == ["good"]


async def test_a_topic_that_grows(http: httpx.AsyncClient) -> None:
    async with listening(http, STREAM) as source:
        last = await source.until_id()
        answered(await http.post("/v1/topics/orders/partitions", json={"partitions": 5}))
        await produce(http, "new", partition=4)
        await produce(http, "old", partition=0)
        assert sorted(await values(source, 2)) == ["new", "old"]
    async with listening(http, STREAM, last) as source:
        assert sorted(await values(source, 2)) == ["new", "old"]


async def test_a_topic_that_is_deleted(http: httpx.AsyncClient) -> None:
    async with listening(http, STREAM) as source:
        last = await source.until_id()
        answered(await http.delete("/v1/topics/orders"), 204)
        event = await source.next()
        assert (event.kind, event.data) == ("end", {"detail": "the topic 'orders' was deleted"})
        with pytest.raises(EOFError):
            await source.next()
    answered(await http.get(STREAM), 404)
    answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 3}), 201)
    found = answered(await http.get(STREAM, headers={"last-event-id": last}), 409)
    assert "deleted and created again" in found["detail"]


@pytest.mark.parametrize("id", ["x", "0000000.0-0", "{mark}.9-0", "{mark}.0-0,0-1", "{mark}.0-7"])
async def test_ids_that_are_none(http: httpx.AsyncClient, id: str) -> None:
    async with listening(http, STREAM) as source:
        mark = (await source.until_id()).partition(".")[0]
    answered(await http.get(STREAM, params={"after": id.format(mark=mark)}), 400)


async def test_a_stop_ends_streams() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        async with listening(http, STREAM) as source:
            await source.until_id()
            await broker.app.stop()
            with pytest.raises(EOFError):
                await source.next()


async def test_a_client_that_does_not_read_holds_little() -> None:
    value = "x" * 100_000
    async with AsyncBroker(connection_buffer_bytes=256 * 1024) as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        async with listening(http, STREAM) as source:
            await source.until_id()
            for _ in range(20):
                await produce(http, *[value] * 10)
            held = max(each.info.held_bytes for each in broker.app.connections)
            assert 0 < held < 3_000_000
            assert await values(source, 200) == [value] * 200


async def test_streams_need_permission_as_long_as_they_last() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        answered(await admin.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        async with client(broker, "ann") as ann:
            answered(await ann.get(STREAM), 403)
            acl = Acl(principal="User:ann", operation=Operation.READ, kind=Kind.TOPIC, name="orders")
            acls = broker.app.broker.access.acls
            await acls.add([acl])
            async with listening(ann, STREAM) as source:
                await source.until_id()
                await produce(admin, "seen")
                assert await values(source, 1) == ["seen"]
                await acls.remove(lambda each: each == acl)
                await produce(admin, "not seen")
                event = await source.next()
                assert (event.kind, event.data["detail"]) == (
                    "end",
                    "you may not read topic 'orders' any more",
                )


async def test_streams_are_charged_to_the_quota() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        answered(await admin.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        quotas = broker.app.broker.access.quotas
        await quotas.change(Entity("admin"), {Quota.READ: 40_000.0})
        async with listening(admin, STREAM) as source:
            await source.until_id()
            for number in range(2):
                await produce(admin, "x" * 60_000)
                assert len((await values(source, 1))[0]) == 60_000
                while quotas.throttles == number:
                    await asyncio.sleep(0.01)


def test_there_may_be_so_many_streams() -> None:
    streams = OpenStreams(most=3, most_of_one=2)
    with streams.entered("ann"), streams.entered("ann"):
        with pytest.raises(Problem, match="ann streams records too many times") as of_one:
            streams.check("ann")
        streams.check("ben")
        with streams.entered("ben"), pytest.raises(Problem, match="too many clients") as of_all:
            streams.check("eve")
    streams.check("ann")
    assert (of_one.value.status, of_all.value.status) == (429, 503)


async def test_too_many_partitions_for_one_stream(http: httpx.AsyncClient) -> None:
    answered(await http.post("/v1/topics", json={"name": "wide", "partitions": 101}), 201)
    found = answered(await http.get("/v1/topics/wide/records/stream"), 400)
    assert "choose one of 'wide' with partition" in found["detail"]
    async with listening(http, "/v1/topics/wide/records/stream", partition=100) as source:
        answered(await http.post("/v1/topics/wide/records", json={"value": "a", "partition": 100}))
        assert await values(source, 1) == ["a"]


async def test_a_read_waits_for_records(http: httpx.AsyncClient) -> None:
    await produce(http, "a", partition=0)
    query = {"partition": 0, "offset": 1, "wait_ms": 30_000}
    waiting = asyncio.create_task(http.get(ORDERS, params=query, timeout=60))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await produce(http, "b", partition=0)
    found = answered(await waiting)
    assert [each["value"]["data"] for each in found["records"]] == ["b"]
    nothing = answered(await http.get(ORDERS, params={"partition": 0, "offset": 2, "wait_ms": 50}))
    assert nothing["records"] == []
    wrong = answered(await http.get(ORDERS, params={"wait_ms": 50}), 400)
    assert wrong["detail"] == "wait_ms belongs to an offset: give partition and offset, too"
