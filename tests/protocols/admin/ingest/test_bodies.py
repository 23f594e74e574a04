"""What may be sent as records: JSON in several shapes, lines, and plain bytes."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Entity, Quota
from posthouse.records.partitioner import partition_of
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.admin.ingest.stored_records import stored

ORDERS = "/v1/topics/orders/records"
OCTETS = {"content-type": "application/octet-stream"}
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


@pytest.fixture
async def http(broker: AsyncBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with client(broker) as found:
        answered(await found.post("/v1/topics", json={"name": "orders", "partitions": 4}), 201)
        yield found


async def test_one_record_a_list_and_an_object_with_a_list(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    one = {"key": "k", "value": {"n": 1}, "encoding": "json", "partition": 2}
    for number, body in enumerate((one, [one], {"records": [one]})):
        found = answered(await http.post(ORDERS, json=body))
        assert found == {"records": [{"partition": 2, "offset": number, "error": None}]}
    assert [each.value for each in await stored(broker.app.broker)] == [b'{"n":1}'] * 3


async def test_a_record_in_each_line(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    lines = "\n".join(
        json.dumps({"key": str(number % 3), "value": f"{number}"}, ensure_ascii=False) for number in range(9)
    )
    found = answered(await http.post(ORDERS, content=lines + "\n\n", headers=LINES))
    places = [(each["partition"], each["offset"]) for each in found["records"]]
    assert [partition for partition, _ in places] == [
        partition_of(b"%d" % (number % 3), 4) for number in range(9)
    ]
    assert len(set(places)) == 9
    assert sorted(int(each.value or b"") for each in await stored(broker.app.broker)) == list(range(9))


async def test_a_body_of_another_type_is_the_value(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    picture = bytes(range(256))
    headers = {"content-type": "image/png", "posthouse-header-trace": "7f3a", "x-other": "no"}
    query: dict[str, Any] = {"key": "a", "timestamp": 5, "partition": 3}
    found = answered(await http.post(ORDERS, content=picture, headers=headers, params=query))
    assert found == {"records": [{"partition": 3, "offset": 0, "error": None}]}
    [record] = await stored(broker.app.broker)
    assert (record.key, record.value, record.timestamp) == (b"a", picture, 5)
    assert record.headers == (("trace", b"7f3a"), ("content-type", b"image/png"))


async def test_plain_bytes(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    query = {"key": "/w==", "key_encoding": "base64"}
    answered(await http.post(ORDERS, content=b"", headers=OCTETS, params=query))
    [record] = await stored(broker.app.broker)
    assert (record.key, record.value, record.headers) == (b"\xff", b"", ())


async def test_json_as_it_is(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    document = b'{"records": 1.10, "a" : [ ]}'
    headers = {"content-type": "application/json"}
    answered(await http.post(ORDERS, content=document, headers=headers, params={"raw": "true"}))
    [record] = await stored(broker.app.broker)
    assert record.value == document
    assert record.headers == (("content-type", b"application/json"),)


@pytest.mark.parametrize(
    ("content", "headers", "detail"),
    [
        (b"", {"content-type": "application/json"}, "the request has no body"),
        (b"[]", {"content-type": "application/json"}, "must have at least 1 entry"),
        (b"{}", {"content-type": "application/json"}, "the field 'value' is missing"),
        (b'{"value": "a", "x": 1}', {"content-type": "application/json"}, "there is no field 'x'"),
        (b'{"records": [1]}', {"content-type": "application/json"}, "'records[0]' must be an object"),
        (b"7", {"content-type": "application/json"}, "must be an object"),
        (b"{", {"content-type": "application/json"}, "not valid JSON"),
        (b"\n \n", LINES, "the body has no lines"),
        (b'{"value": "a"}\n{"value"', LINES, "line 2 is not valid JSON"),
        (b'{"value": "a"}\n{"key": "a"}', LINES, "line 2 is wrong: the field 'value' is missing"),
        (b'{"value": "a"}\n' * 1001, LINES, "at most 1000 records"),
    ],
)
async def test_what_is_wrong_is_said(
    http: httpx.AsyncClient, content: bytes, headers: dict[str, str], detail: str
) -> None:
    assert detail in answered(await http.post(ORDERS, content=content, headers=headers), 400)["detail"]


async def test_parameters_of_a_value_do_not_go_with_records(http: httpx.AsyncClient) -> None:
    for name, value in {"key": "a", "partition": "0", "timestamp": "1", "key_encoding": "text"}.items():
        found = answered(await http.post(ORDERS, json={"value": "a"}, params={name: value}), 400)
        assert f"'{name}' is for bodies that are the value" in found["detail"]


async def test_a_partition_that_there_is_not(http: httpx.AsyncClient) -> None:
    query = {"partition": 4}
    found = answered(await http.post(ORDERS, content=b"x", headers=OCTETS, params=query), 404)
    assert found["detail"] == "topic 'orders' has no partition 4"


@pytest.mark.parametrize("kind", ["", "text/plain; charset=utf-8", "application/x-www-form-urlencoded"])
async def test_types_that_pages_of_other_sites_can_send_are_refused(
    broker: AsyncBroker, http: httpx.AsyncClient, kind: str
) -> None:
    request = http.build_request("POST", ORDERS, content=b"x", headers={"content-type": kind})
    if not kind:
        del request.headers["content-type"]
    assert "application/octet-stream" in answered(await http.send(request), 415)["detail"]
    asked = http.build_request(
        "POST", ORDERS, content=b"x", headers={"content-type": kind, "idempotency-key": "1"}
    )
    if kind:  # a page has to ask before it sends this header
        answered(await http.send(asked))
    else:
        del asked.headers["content-type"]
        answered(await http.send(asked), 400)
    assert len(await stored(broker.app.broker)) == bool(kind)


async def test_permissions_quotas_and_limits_are_those_of_all_clients() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        settings = {"max.message.bytes": "1000"}
        body: dict[str, Any] = {"name": "orders", "partitions": 1, "settings": settings}
        answered(await admin.post("/v1/topics", json=body), 201)
        async with client(broker, "ann") as ann:
            refused = await ann.post(ORDERS, content=b"x", headers=OCTETS)
            assert "posthouse acl allow YOU write topic orders" in answered(refused, 403)["detail"]
            acl = Acl(principal="User:ann", operation=Operation.WRITE, kind=Kind.TOPIC, name="orders")
            await broker.app.broker.access.acls.add([acl])
            answered(await ann.post(ORDERS, content=b"x", headers=OCTETS))
            answered(await ann.post(ORDERS, content=bytes(2000), headers=OCTETS), 413)
            quotas = broker.app.broker.access.quotas
            await quotas.change(Entity("ann"), {Quota.WRITTEN: 100.0})
            for key in ({}, {"idempotency-key": "k"}):
                before = quotas.throttles
                answered(await ann.post(ORDERS, content=bytes(500), headers=OCTETS | key))
                assert quotas.throttles == before + 1
            assert len(await stored(broker.app.broker)) == 3
