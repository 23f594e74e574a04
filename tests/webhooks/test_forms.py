"""What requests look like."""

import base64
import json

from posthouse.broker.webhooks.definition import Form
from posthouse.model.ids import PartitionId, TopicId
from posthouse.webhooks.delivery import Delivery, Header
from posthouse.webhooks.requests import request_of
from tests.webhooks.receivers import Received, Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, headers_of, lag, produce, records, until, webhook

PLACE = PartitionId(TopicId(bytes(range(16))), 3)


def delivery(
    value: bytes = b"{}", *headers: Header, key: bytes | None = b"ann", offset: int = 7, attempt: int = 1
) -> Delivery:
    return Delivery(
        place=PLACE,
        offset=offset,
        topic="orders",
        key=key,
        value=value,
        headers=headers,
        timestamp=1_700_000_000_123,
        attempt=attempt,
    )


def test_a_raw_request_is_the_value() -> None:
    request = request_of(Form.RAW, [delivery(b"\x00\xff", key=b"a/\xff b", attempt=2)], is_batch=False)
    assert request.body == b"\x00\xff"
    assert request.id == "msg_000102030405060708090a0b0c0d0e0f_3_7"
    assert dict(request.headers) == {
        "content-type": "application/octet-stream",
        "posthouse-topic": "orders",
        "posthouse-partition": "3",
        "posthouse-offset": "7",
        "posthouse-attempt": "2",
        "posthouse-key": "a/%FF%20b",
    }


def test_a_content_type_that_no_header_can_have_is_left_out() -> None:
    for wrong in (b"text/plain\r\nx: y", b"\xff\x00", b"", b" ", b"a" * 500):
        request = request_of(Form.RAW, [delivery(b"1", (b"content-type", wrong))], is_batch=False)
        assert dict(request.headers)["content-type"] == "application/octet-stream"


def test_a_structured_event() -> None:
    request = request_of(Form.STRUCTURED, [delivery(b'{"total": 3}')], is_batch=False)
    assert dict(request.headers)["content-type"] == "application/cloudevents+json"
    assert json.loads(request.body) == {
        "specversion": "1.0",
        "id": "msg_000102030405060708090a0b0c0d0e0f_3_7",
        "source": "/topics/orders",
        "type": "posthouse.message",
        "time": "2023-11-14T22:13:20.123Z",
        "partitionkey": "ann",
        "datacontenttype": "application/json",
        "data": {"total": 3},
    }


def test_data_that_is_no_json() -> None:
    def event(value: bytes, *headers: Header) -> dict[str, object]:
        request = request_of(Form.STRUCTURED, [delivery(value, *headers)], is_batch=False)
        return dict(json.loads(request.body))

    assert event(b"\xff\x00")["data_base64"] == base64.b64encode(b"\xff\x00").decode()
    text = event(b"hello", (b"content-type", b"text/plain"))
    assert (text["data"], text["datacontenttype"]) == ("hello", "text/plain")
    broken = event(b"{", (b"content-type", b"application/json"))
    assert broken["data_base64"] == "ew=="
    avro = event(b"1", (b"content-type", b"application/avro"))
    assert avro["data_base64"] == "MQ=="


def test_an_event_keeps_its_attributes() -> None:
    own: list[Header] = [
        (b"ce_specversion", b"1.0"),
        (b"ce_id", b"4711"),
        (b"ce_source", b"/shop"),
        (b"ce_type", b"order.paid"),
        (b"ce_subject", 'caf\u00e9 "1"%'.encode()),
        (b"ce_Wrong-Name", b"x"),
        (b"content-type", b"application/json"),
    ]
    request = request_of(Form.STRUCTURED, [delivery(b"1", *own)], is_batch=False)
    event = json.loads(request.body)
    assert (event["id"], event["source"], event["type"]) == ("4711", "/shop", "order.paid")
    assert event["subject"] == 'café "1"%'
    assert "Wrong-Name" not in event
    binary = dict(request_of(Form.BINARY, [delivery(b"1", *own)], is_batch=False).headers)
    assert binary["ce-id"] == "4711"
    assert binary["ce-subject"] == "caf%C3%A9%20%221%22%25"
    assert binary["content-type"] == "application/json"


def test_half_an_event_is_none() -> None:
    request = request_of(Form.STRUCTURED, [delivery(b"1", (b"ce_type", b"order.paid"))], is_batch=False)
    assert json.loads(request.body)["type"] == "posthouse.message"


async def test_a_batch_with_a_message_that_is_refused_takes_no_other_along() -> None:
    def answer(received: Received) -> Reply:
        return Reply(status=400) if b'"bad"' in received.body else Reply()

    async with pushing_broker() as started, receiver(answer) as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await produce(broker, *((None, value) for value in (b"1", b'"bad"', b"2")))
        await broker.webhooks.create(webhook(endpoint.url, form=Form.STRUCTURED, batch=10))
        await until(lambda: lag(broker) == 0)
        whole, *alone = [[event["data"] for event in json.loads(each)] for each in endpoint.bodies]
        assert whole == [1, "bad", 2]
        assert sorted(alone, key=str) == [["bad"], [1], [2]]
        [dead] = await records(broker, "dlq.webhook.hook")
        assert dead.value == b'"bad"'
        assert headers_of(dead)["posthouse.webhook-attempts"] == "2"


async def test_a_filter_selects_by_headers() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        for region in (b"eu", b"us", b"eu", b"\xff"):
            await produce(broker, (None, region), headers=[(b"region", region), (b"total", b"5")])
        await broker.webhooks.create(webhook(endpoint.url, filter="region = 'eu' AND total > 3"))
        await until(lambda: lag(broker) == 0)
        assert endpoint.bodies == [b"eu", b"eu"]
