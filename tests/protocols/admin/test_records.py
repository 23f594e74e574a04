"""Records by HTTP: looked at by offset, time and key, decoded, and produced."""

import base64
import time
from typing import Any

import httpx
import msgspec
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Entity, Quota
from posthouse.broker.appending import Produced
from posthouse.protocols.admin.payloads import shown
from posthouse.records.batch import HEADER_SIZE
from posthouse.records.builder import BatchBuilder, attributes_of, write_header
from posthouse.records.compression import Codec
from posthouse.testing import AsyncBroker
from tests.protocols.admin import transactional
from tests.protocols.admin.clients import USERS, answered, client

ORDERS = "/v1/topics/orders/records"


async def _produce(http: httpx.AsyncClient, *records: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answered(await http.post(ORDERS, json={"records": records}))["records"]
    return found


async def _get(http: httpx.AsyncClient, **parameters: Any) -> Any:
    return answered(await http.get(ORDERS, params=parameters))


def _data(found: Any) -> list[Any]:
    return [each["value"]["data"] for each in found["records"]]


async def _topic(http: httpx.AsyncClient, partitions: int = 1, **settings: str) -> None:
    body = {"name": "orders", "partitions": partitions, "settings": settings}
    answered(await http.post("/v1/topics", json=body), 201)


async def test_what_was_produced_is_read_by_offset() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        headers = [{"name": "trace", "value": "7"}, {"name": "trace", "value": None}]
        produced = await _produce(
            http, {"key": "a", "value": "one", "headers": headers, "timestamp": 5}, {"value": None}
        )
        assert produced == [
            {"partition": 0, "offset": 0, "error": None},
            {"partition": 0, "offset": 1, "error": None},
        ]
        found = await _get(http, partition=0, offset=0)
        assert found["records"][0] == {
            "partition": 0,
            "offset": 0,
            "timestamp": 5,
            "key": {"encoding": "text", "data": "a", "size": 1},
            "value": {"encoding": "text", "data": "one", "size": 3},
            "headers": [
                {"name": "trace", "value": {"encoding": "text", "data": "7", "size": 1}},
                {"name": "trace", "value": None},
            ],
        }
        assert found["records"][1]["value"] is None
        assert (found["next"], found["complete"]) == (None, True)
        assert [each["offset"] for each in (await _get(http, partition=0, offset=1))["records"]] == [1]
        assert (await _get(http, partition=0, offset=2))["records"] == []


async def test_encodings_of_produced_records() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        raw = b"\xff\x00\x01"
        await _produce(
            http,
            {"value": {"n": 10**30}, "encoding": "json", "key": 7, "key_encoding": "json"},
            {"value": base64.b64encode(raw).decode(), "encoding": "base64"},
        )
        first, second = (await _get(http, partition=0, offset=0))["records"]
        assert first["value"] == {"encoding": "json", "data": {"n": 10**30}, "size": 37}
        assert first["key"]["data"] == "7"
        assert second["value"] == {"encoding": "hex", "data": "ff0001", "size": 3}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"value": 7}, "value of record 0 must be a text"),
        ({"value": "x", "encoding": "base64"}, "not valid base64"),
        ({"value": "x", "headers": [{"name": "h", "value": []}]}, "header 'h' of record 0"),
        ({"value": "x", "encoding": "hex"}, "encoding"),
        ({}, "value"),
    ],
)
async def test_records_that_cannot_be_stored(record: dict[str, Any], says: str) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        problem = answered(await http.post(ORDERS, json={"records": [record]}), 400)
        assert says in problem["detail"]
        assert (await _get(http))["records"] == []


async def test_partitions_are_chosen_as_kafka_clients_choose_them() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, 6)
        produced = await _produce(
            http, {"key": "21", "value": ""}, {"key": "foobar", "value": ""}, {"value": "", "partition": 5}
        )
        # The hashes are test vectors of Kafka's Java client.
        expected = [(-973932308 & 0x7FFFFFFF) % 6, (-790332482 & 0x7FFFFFFF) % 6, 5]
        assert [each["partition"] for each in produced] == expected
        keyless = await _produce(http, *({"value": str(each)} for each in range(5)))
        assert len({each["partition"] for each in keyless}) == 1
        answered(await http.post(ORDERS, json={"records": [{"value": "", "partition": 6}]}), 404)


async def test_a_partition_that_refuses_does_not_stop_the_others() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, 2, **{"max.message.bytes": "200"})
        large = {"value": "x" * 500, "partition": 0}
        first, second = await _produce(http, large, {"value": "y", "partition": 1})
        assert (first["offset"], second) == (None, {"partition": 1, "offset": 0, "error": None})
        assert "exceeds the limit" in first["error"]
        problem = answered(await http.post(ORDERS, json={"records": [large]}), 413)
        assert problem["error"] == "RecordTooLarge"


async def test_by_time() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, 2)
        await _produce(
            http, *({"value": str(each), "timestamp": each, "partition": each % 2} for each in range(10))
        )
        assert _data(await _get(http, timestamp=6)) == ["6", "8", "7", "9"]
        assert _data(await _get(http, timestamp=6, partition=1)) == ["7", "9"]
        assert _data(await _get(http, timestamp=100)) == []


async def test_by_key_in_bounded_steps() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, 2)
        for each in range(40):
            await _produce(
                http,
                {"key": "rare" if each % 10 == 3 else "other", "value": f"{each}", "partition": each % 2},
            )
        assert _data(await _get(http, key="rare")) == ["3", "13", "23", "33"]
        seen, after, steps = [], "", 0
        while after is not None:
            found = await _get(http, key="rare", max_bytes=300, after=after)
            assert found["complete"] == (found["next"] is None)
            seen += _data(found)
            after = found["next"]
            steps += 1
        assert seen == ["3", "13", "23", "33"]
        assert steps > 5
        encoded = base64.b64encode(b"rare").decode()
        assert len((await _get(http, key=encoded, key_encoding="base64", limit=2))["records"]) == 2


async def test_pages_of_records_have_each_once() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, 3)
        await _produce(http, *({"value": str(each), "partition": each % 3} for each in range(30)))
        seen, after = [], "0-0"
        while after is not None:
            found = await _get(http, limit=4, after=after)
            assert len(found["records"]) <= 4
            seen += _data(found)
            after = found["next"]
        assert sorted(seen, key=int) == [str(each) for each in range(30)]


async def test_the_newest_of_a_topic() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, 3)
        for each in range(30):
            await _produce(http, {"value": str(each), "timestamp": each, "partition": each % 3})
        assert _data(await _get(http, limit=4)) == ["29", "28", "27", "26"]
        assert _data(await _get(http, limit=2, partition=1)) == ["28", "25"]


async def test_compressed_batches() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        topic = broker.app.broker.topic("orders")
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
            builder = BatchBuilder(codec)
            for each in range(3):
                builder.add(None, f"{codec.name} {each}".encode(), (), 0)
            await broker.app.broker.append([Produced(topic, 0, memoryview(builder.build()))]).wait()
        assert _data(await _get(http, partition=0, offset=4, limit=3)) == ["SNAPPY 1", "SNAPPY 2", "LZ4 0"]


async def test_a_batch_that_is_not_what_it_says_is_counted() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        topic = broker.app.broker.topic("orders")
        batch = _claiming(Codec.GZIP, b"this is no gzip, but it is what the producer sent")
        await broker.app.broker.append([Produced(topic, 0, memoryview(bytearray(batch)))]).wait()
        await _produce(http, {"value": "good"})
        found = await _get(http, partition=0, offset=0)
        assert (_data(found), found["unreadable_batches"]) == (["good"], 1)


def _claiming(codec: Codec, body: bytes) -> bytearray:
    batch = bytearray(HEADER_SIZE) + body
    write_header(
        batch,
        base_offset=0,
        attributes=attributes_of(codec),
        count=1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    return batch


async def test_aborted_and_open_transactions_are_hidden() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        await _produce(http, {"value": "before"})
        inner = broker.app.broker
        for value, commit in (("aborted", False), ("committed", True)):
            producer = await transactional.write(inner, value, "orders", value)
            await transactional.end(inner, value, producer, commit=commit)
        await transactional.write(inner, "open", "orders", "open")
        await _produce(http, {"value": "behind"})
        assert _data(await _get(http, partition=0, offset=0)) == ["before", "committed"]
        every = ["before", "aborted", "committed", "open", "behind"]
        assert _data(await _get(http, partition=0, offset=0, isolation="uncommitted")) == every
        assert _data(await _get(http, limit=3)) == ["committed", "before"]
        assert set(_data(await _get(http, limit=9, isolation="uncommitted"))) == set(every)


async def test_long_values_are_cut() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        await _produce(http, {"value": "ä" * 100}, {"value": [1] * 100, "encoding": "json"})
        text, numbers = (await _get(http, partition=0, offset=0, value_bytes=25))["records"]
        assert text["value"] == {"encoding": "text", "data": "ä" * 12, "size": 200, "truncated": True}
        assert numbers["value"] == {
            "encoding": "text",
            "data": "[" + "1," * 12,
            "size": 201,
            "truncated": True,
        }


@pytest.mark.parametrize(
    ("parameters", "status", "says"),
    [
        ({"offset": 0}, 400, "give the partition"),
        ({"partition": 0, "offset": 99}, 400, "outside the log"),
        ({"partition": 0, "offset": 0, "timestamp": 1}, 400, "not both"),
        ({"partition": 7}, 404, "no partition 7"),
        ({"after": "x"}, 400, "after"),
        ({"key": "%", "key_encoding": "base64"}, 400, "base64"),
        ({"isolation": "none"}, 400, "isolation"),
    ],
    ids=str,
)
async def test_bad_questions(parameters: dict[str, Any], status: int, says: str) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        problem = answered(await http.get(ORDERS, params=parameters), status)
        assert says in problem["detail"]


async def test_reading_and_producing_need_permissions() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await _topic(admin)
        answered(await ann.get(ORDERS), 403)
        answered(await ann.post(ORDERS, json={"records": [{"value": "x"}]}), 403)
        assert (await _get(admin))["records"] == []


@pytest.mark.parametrize(
    ("data", "encoding", "shown_data"),
    [
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        (b"two\nlines\t", "text", "two\nlines\t"),
        ("grün".encode(), "text", "grün"),
        (b"7", "text", "7"),
        (b'{"a": 1.10}', "json", msgspec.Raw(b'{"a": 1.10}')),
        (b'{"a": ', "text", '{"a": '),
        (b"[" * 2000, "text", "[" * 2000),
        (b"\x1b[31m", "hex", "1b5b33316d"),
        (b"\xff\xfe", "hex", "fffe"),
        ((1).to_bytes(8, "big"), "hex", "0000000000000001"),
        ((1_700_000_000_000).to_bytes(8, "big"), "hex", f"{1_700_000_000_000:016x}"),
        (msgspec.msgpack.encode({"a": [1, b"x"]}), "msgpack", msgspec.Raw(b'{"a":[1,"eA=="]}')),
        (msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x")), "hex", "d40578"),
        (b"\x00\x00\x00\x00\x07\x06abc", "hex", "000000000706616263"),
        (b"\x00\x00\x00\x00\x07\x00\x08\x96\x01\x12\x01a", "protobuf", msgspec.Raw(b'{"1":150,"2":"a"}')),
        (b'\x00\x00\x00\x00\x07{"a":1}', "json", msgspec.Raw(b'{"a":1}')),
    ],
    ids=lambda each: repr(each)[:30] if isinstance(each, bytes) else "",
)
def test_what_bytes_are_taken_for(data: bytes, encoding: str, shown_data: object) -> None:
    payload = shown(data, 10_000)
    assert payload is not None
    assert (payload.encoding, payload.data, payload.size) == (encoding, shown_data, len(data))
    if data.startswith(b"\x00\x00\x00\x00\x07"):
        assert payload.schema_id == 7
        assert (payload.note is None) == (encoding == "json")


def _inflating(size: int) -> bytes:
    """A small batch that becomes large: one record of zeros and one to be found behind it."""
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.add(b"big", bytes(size), (), 1)
    builder.add(b"small", b"last", (), 2)
    return bytes(builder.build())


@pytest.mark.parametrize("parameters", [{}, {"partition": 0, "offset": 0}, {"key": "none"}])
async def test_batches_count_as_what_they_become_in_memory(parameters: dict[str, Any]) -> None:
    """Each of 75 small batches becomes 14 MB: a request opens one of them, and the answer stays small."""
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        inner = broker.app.broker
        batch = _inflating(14_000_000)
        assert len(batch) < 10_000
        for _ in range(75):
            [result] = await inner.append(
                [Produced(inner.topic("orders"), 0, memoryview(bytearray(batch)))]
            ).wait()
            assert not isinstance(result, Exception)
        most = {"limit": 1000, "max_bytes": 4 * 1024 * 1024, "value_bytes": 1024 * 1024}
        response = await http.get(ORDERS, params=most | parameters)
        found = answered(response)
        assert not found["complete"]
        assert 14_000_000 < found["scanned_bytes"] < 20_000_000
        assert len(response.content) < 8 * 1024 * 1024
        assert found["records"] or "key" in parameters
        if not parameters:
            assert [each["offset"] for each in found["records"]] == [149, 148]


async def test_the_newest_records_are_bounded_by_their_shown_bytes() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, partitions=2)
        for number in range(40):
            await _produce(
                http, {"value": str(number % 10) * 100_000, "partition": number % 2, "timestamp": number}
            )
        response = await http.get(
            ORDERS, params={"limit": 1000, "max_bytes": 1_000_000, "value_bytes": 100_000}
        )
        found = answered(response)
        assert len(response.content) < 1_200_000
        assert not found["complete"]
        assert found["records"][0]["timestamp"] in (38, 39)


async def test_a_record_of_very_many_headers_is_cut() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        builder = BatchBuilder(codec=Codec.ZSTD)
        builder.add(b"k", b"v", tuple((f"h{each}", bytes(100_000)) for each in range(100)), 1)
        inner = broker.app.broker
        await inner.append([Produced(inner.topic("orders"), 0, memoryview(builder.build()))]).wait()
        response = await http.get(ORDERS, params={"value_bytes": 1024 * 1024})
        [record] = answered(response)["records"]
        assert len(record["headers"]) + record["more_headers"] == 100
        assert len(response.content) < 4 * 1024 * 1024


async def test_produced_and_read_bytes_are_charged_to_the_quotas_of_the_user() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await _topic(admin)
        acl = Acl(kind=Kind.TOPIC, name="orders", principal="User:ann", operation=Operation.ALL)
        quotas = broker.app.broker.access.quotas
        await broker.app.broker.access.acls.add([acl])
        await quotas.change(Entity("ann"), {Quota.WRITTEN: 50_000.0, Quota.READ: 40_000.0})
        await _produce(admin, {"value": "x" * 100_000})
        assert quotas.throttles == 0
        answered(await ann.get("/v1/topics"))  # a body before the login is small
        began = time.monotonic()
        await _produce(ann, {"value": "x" * 75_000})
        assert (quotas.throttles, time.monotonic() - began > 0.4) == (1, True)
        began = time.monotonic()
        await _get(ann, limit=1, value_bytes=60_000)
        assert (quotas.throttles, time.monotonic() - began > 0.4) == (2, True)
