"""What is sent: the body and the headers of one request, in each form."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, quote_from_bytes

import msgspec

from posthouse.broker.webhooks.definition import Form
from posthouse.webhooks.cloud_events import attributes_of, structured
from posthouse.webhooks.delivery import Delivery
from posthouse.webhooks.http_connection import Headers

_ANY: Final = "application/octet-stream"
_EVENT: Final = "application/cloudevents+json"
_EVENTS: Final = "application/cloudevents-batch+json"
_CONTENT_TYPES: Final = (b"content-type", b"amqp.content-type")
_CONTENT_TYPE: Final = re.compile(r"[!-~][ -~]{0,198}[!-~]")
_LONGEST_KEY: Final = 1024
_UNCHANGED: Final = "!#$&'()*+,/:;=?@[]^_`{|}~<>\\"
"""In a header of a CloudEvent; besides letters, digits and -._"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    id: str
    headers: Headers
    body: bytes


def request_of(form: Form, deliveries: Sequence[Delivery], *, is_batch: bool) -> Request:
    """`is_batch` is of the webhook: its endpoint gets an array also if there is one message."""
    first = deliveries[0]
    if form is Form.STRUCTURED:
        return _structured(deliveries, is_batch=is_batch)
    headers: Headers = [("content-type", content_type(first) or _ANY), *_place(first)]
    if form is Form.BINARY:
        attributes = attributes_of(first)
        headers += [(f"ce-{name}", quote(value, safe=_UNCHANGED)) for name, value in attributes.items()]
    return Request(id=first.id, headers=headers, body=first.value)


def _structured(deliveries: Sequence[Delivery], *, is_batch: bool) -> Request:
    first = deliveries[0]
    events = [structured(each, attributes_of(each), content_type(each)) for each in deliveries]
    if not is_batch:
        headers = [("content-type", _EVENT), *_place(first)]
        return Request(id=first.id, headers=headers, body=msgspec.json.encode(events[0]))
    attempt = ("posthouse-attempt", str(max(each.attempt for each in deliveries)))
    id = first.id if len(deliveries) == 1 else f"{first.id}_{len(deliveries)}"
    return Request(id=id, headers=[("content-type", _EVENTS), attempt], body=msgspec.json.encode(events))


def _place(delivery: Delivery) -> Headers:
    """Where the message comes from. Keys may be any bytes: they are percent-encoded."""
    headers = [
        ("posthouse-topic", quote(delivery.topic)),
        ("posthouse-partition", str(delivery.place.index)),
        ("posthouse-offset", str(delivery.offset)),
        ("posthouse-attempt", str(delivery.attempt)),
    ]
    if delivery.key is not None and len(delivery.key) <= _LONGEST_KEY:
        headers.append(("posthouse-key", quote_from_bytes(delivery.key)))
    return headers


def content_type(delivery: Delivery) -> str | None:
    """As the producer has given it; None if it has not, or as no header can have it."""
    for name in _CONTENT_TYPES:
        value = delivery.header(name)
        if value is not None and _CONTENT_TYPE.fullmatch(text := value.decode("latin-1")):
            return text
    return None
