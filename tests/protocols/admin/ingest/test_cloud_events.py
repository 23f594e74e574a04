"""CloudEvents in all modes of HTTP, which Kafka consumers see as those of other producers: `cloudevents`, the
SDK of the project, is the judge of both sides."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiokafka
import httpx
import pytest
from cloudevents.core.bindings.http import to_binary as http_binary
from cloudevents.core.bindings.http import to_structured as http_structured
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.bindings.kafka import to_binary as kafka_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from posthouse.records.record import Record
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import answered, client
from tests.protocols.admin.ingest.stored_records import stored

ORDERS = "/v1/topics/orders/records"
EVENT = {"content-type": "application/cloudevents+json"}
EVENTS = {"content-type": "application/cloudevents-batch+json"}
FORMAT = JSONFormat()


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


@pytest.fixture
async def http(broker: AsyncBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with client(broker) as found:
        answered(await found.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        yield found


def event(**more: Any) -> CloudEvent:
    attributes = {
        "id": "1",
        "source": "/shop/öst %",
        "specversion": "1.0",
        "type": "order.placed",
        "time": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "subject": "a b",
        "datacontenttype": "application/json",
        "partitionkey": "ann",
        "tenant": "7",
    }
    return CloudEvent(attributes | more, {"item": "tea", "count": 2})


def plain(**more: Any) -> dict[str, Any]:
    return {"id": "1", "source": "/shop", "specversion": "1.0", "type": "t"} | more


def as_kafka(record: Record) -> KafkaMessage:
    headers = {name: value or b"" for name, value in record.headers}
    return KafkaMessage(headers=headers, key=record.key, value=record.value or b"")


async def test_every_mode_is_stored_as_other_producers_store_it(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    sent = event()
    binary = http_binary(sent, FORMAT)
    answered(await http.post(ORDERS, content=binary.body, headers=dict(binary.headers)))
    structured = http_structured(sent, FORMAT)
    answered(await http.post(ORDERS, content=structured.body, headers=dict(structured.headers)))
    batch = b"[%s,%s]" % (structured.body, structured.body)
    found = answered(await http.post(ORDERS, content=batch, headers=EVENTS))
    assert [each["offset"] for each in found["records"]] == [2, 3]
    expected = kafka_binary(sent, FORMAT)
    for record in await stored(broker.app.broker):
        message = as_kafka(record)
        assert message.headers == expected.headers
        assert message.key == b"ann"
        assert json.loads(message.value) == {"item": "tea", "count": 2}
        back = from_binary(message, FORMAT)
        assert back.get_attributes() == sent.get_attributes()
        assert back.get_data() == sent.get_data()


async def test_a_kafka_consumer_gets_them(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    structured = http_structured(event(), FORMAT)
    answered(await http.post(ORDERS, content=structured.body, headers=dict(structured.headers)))
    consumer = aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=broker.kafka, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        got = await consumer.getone()
    finally:
        await consumer.stop()
    message = KafkaMessage(headers=dict(got.headers), key=got.key, value=got.value)
    assert from_binary(message, FORMAT).get_data() == {"item": "tea", "count": 2}


@pytest.mark.parametrize(
    ("more", "value", "content_type"),
    [
        ({}, None, None),
        ({"data": None}, b"null", b"application/json"),
        ({"data": [1, 1.10]}, b"[1,1.1]", b"application/json"),
        ({"data": "text"}, b'"text"', b"application/json"),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text", b"text/plain"),
        ({"data": "{}", "datacontenttype": "application/x+json; charset=utf-8"}, b'"{}"', None),
        ({"data": {"a": 1}, "datacontenttype": "text/plain"}, b'{"a":1}', b"text/plain"),
        ({"data_base64": "/wA=", "datacontenttype": "image/png"}, b"\xff\x00", b"image/png"),
        ({"data_base64": ""}, b"", None),
    ],
)
async def test_data_of_structured_events(
    broker: AsyncBroker,
    http: httpx.AsyncClient,
    more: dict[str, Any],
    value: bytes | None,
    content_type: bytes | None,
) -> None:
    body = json.dumps(plain(**more), separators=(",", ":"))
    answered(await http.post(ORDERS, content=body, headers=EVENT))
    [record] = await stored(broker.app.broker)
    assert record.value == value
    if content_type is not None:
        assert dict(record.headers)["content-type"] == content_type


async def test_attributes_are_stored_as_text(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    body = plain(flag=True, number=-3, none=None, text="ö")
    answered(await http.post(ORDERS, content=json.dumps(body), headers=EVENT))
    [record] = await stored(broker.app.broker)
    assert dict(record.headers) == {
        "ce_id": b"1",
        "ce_source": b"/shop",
        "ce_specversion": b"1.0",
        "ce_type": b"t",
        "ce_flag": b"true",
        "ce_number": b"-3",
        "ce_text": "ö".encode(),
    }
    assert record.key is None


async def test_a_binary_event_without_data_or_a_type(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    headers = {f"ce-{name}": value for name, value in plain().items()}
    answered(await http.post(ORDERS, headers=headers))
    request = http.build_request("POST", ORDERS, content=b"x", headers=headers)
    answered(await http.send(request))
    assert [each.value for each in await stored(broker.app.broker)] == [None, b"x"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (plain(id=""), "the event has no id"),
        ({"id": "1", "source": "/", "type": "t"}, "the event has no specversion"),
        (plain(specversion="0.3"), "version '0.3' of CloudEvents; this broker takes 1.0"),
        (plain(**{"Bad-Name": "x"}), "'Bad-Name' is no name of an attribute"),
        (plain(time="yesterday"), "the time 'yesterday' is not as in"),
        (plain(n=2**31), "'n' must be a text, true, false or a whole number of 32 bits"),
        (plain(n=1.5), "'n' must be a text"),
        (plain(data=1, data_base64="AA=="), "data and data_base64"),
        (plain(data_base64="?"), "data_base64 is not valid base64"),
        ([], "no CloudEvent in JSON"),
    ],
)
async def test_what_is_wrong_is_said(http: httpx.AsyncClient, body: Any, detail: str) -> None:
    found = answered(await http.post(ORDERS, content=json.dumps(body), headers=EVENT), 400)
    assert detail in found["detail"]
    if body:
        batch = json.dumps([plain(), body])
        found = answered(await http.post(ORDERS, content=batch, headers=EVENTS), 400)
        assert detail.replace("the event", "event 1") in found["detail"]


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        (b'"data": "\xff"', "not valid JSON"),
        (b'"subject": "\xff"', "not valid JSON"),
        (b'"datacontenttype": "text/plain", "data": "\xff"', "not valid JSON"),
        (b'"subject": 1e999', "'subject' cannot be read"),
        (b'"datacontenttype": "text/plain", "data": 1e999', "'data' cannot be read"),
    ],
)
async def test_fields_that_cannot_be_read_are_refused(
    http: httpx.AsyncClient, field: bytes, detail: str
) -> None:
    body = json.dumps(plain()).encode()[:-1] + b", " + field + b"}"
    assert detail in answered(await http.post(ORDERS, content=body, headers=EVENT), 400)["detail"]
    batch = b"[" + body + b"]"
    assert detail in answered(await http.post(ORDERS, content=batch, headers=EVENTS), 400)["detail"]


async def test_empty_batches_and_broken_headers_are_refused(http: httpx.AsyncClient) -> None:
    assert "no events" in answered(await http.post(ORDERS, content="[]", headers=EVENTS), 400)["detail"]
    headers = {f"ce-{name}": value for name, value in plain().items()}
    found = answered(await http.post(ORDERS, headers=headers | {"ce-subject": "%ff"}), 400)
    assert "ce-subject is not UTF-8" in found["detail"]
    found = answered(await http.post(ORDERS, headers=headers | {"ce-datacontenttype": "a/b"}), 400)
    assert "the header content-type" in found["detail"]
