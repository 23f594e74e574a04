"""Messages: published to an exchange, and got from a queue."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from posthouse.broker.access.operations import Kind
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.errors import ManagementRefusal, bad_request
from posthouse.protocols.admin.management.requests import (
    body_of,
    channel_of,
    exchange_name,
    namespace_of,
    number,
    require_keys,
    table,
    text,
)
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response, json_response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.direct_channel import After, DirectRefusal, GotMessage

_MOST_MESSAGES = 5000
_MOST_BYTES = 4 * 1024 * 1024
_MOST_TRUNCATE = 2**31
_AFTER: Final[Mapping[str, After]] = {
    "ack_requeue_false": After.ACK,
    "ack_requeue_true": After.REQUEUE,
    "reject_requeue_true": After.REQUEUE,
    "reject_requeue_false": After.REJECT,
}
_OF_MESSAGES_BEFORE_3_7: Final = {True: "ack_requeue_true", False: "ack_requeue_false"}
"""Older tools say `requeue` instead of `ackmode`."""


async def _publish(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace, body = namespace_of(context, parameters), body_of(request)
    require_keys(body, "properties", "routing_key", "payload", "payload_encoding")
    payload = _payload(text(body, "payload"), text(body, "payload_encoding"))
    properties = table(body, "properties")
    try:
        routed = await channel_of(context, namespace).publish(
            exchange_name(parameters["name"]), text(body, "routing_key"), properties, payload
        )
    except DirectRefusal as refused:
        if refused.code == 404:
            raise bad_request(f"404 NOT_FOUND - {refused}") from None  # as RabbitMQ does in this one place
        raise
    name = exchange_name(parameters["name"]) or text(body, "routing_key")
    context.guard.note("publish", f"{Kind.TOPIC}:{namespace.topic_of(name)}")
    return json_response({"routed": routed})


def _payload(payload: str, encoding: str) -> bytes:
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"unsupported encoding {encoding!r}: use string or base64")
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error:
        raise bad_request("the payload is not base64") from None


async def _get(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace, body = namespace_of(context, parameters), dict(body_of(request))
    if "ackmode" not in body and isinstance(body.get("requeue"), bool):
        body["ackmode"] = _OF_MESSAGES_BEFORE_3_7[body["requeue"]]
    require_keys(body, "count", "ackmode", "encoding")
    after = _AFTER.get(text(body, "ackmode"))
    if after is None:
        raise bad_request(f"unknown ackmode {body['ackmode']!r}; there are {', '.join(_AFTER)}")
    encoding = text(body, "encoding")
    if encoding not in ("auto", "base64"):
        raise bad_request(f"unsupported encoding {encoding!r}: use auto or base64")
    truncate = number(body, "truncate", 0, _MOST_TRUNCATE) if "truncate" in body else None
    most = number(body, "count", 0, _MOST_MESSAGES)
    try:
        got = await channel_of(context, namespace).get(parameters["name"], most, _MOST_BYTES, after)
    except DirectRefusal as refused:
        if refused.code == 404:
            raise ManagementRefusal(404, "not_found", f"NOT_FOUND - {refused}") from None
        raise
    if got and after is not After.REQUEUE:
        name = namespace.topic_of(parameters["name"])
        context.guard.note("get", f"{Kind.TOPIC}:{name}", f"{len(got)} messages, {body['ackmode']}")
    return json_response([_view(message, encoding, truncate) for message in got])


def _view(message: GotMessage, encoding: str, truncate: int | None) -> dict[str, Any]:
    body = message.body if truncate is None else message.body[:truncate]
    payload, payload_encoding = _encoded(body, encoding)
    return {
        "payload_bytes": len(message.body),
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "message_count": message.left,
        "properties": message.properties or [],  # as RabbitMQ writes an empty table
        "payload": payload,
        "payload_encoding": payload_encoding,
    }


def _encoded(body: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode(), "string"
        except UnicodeDecodeError:
            pass  # it is shown as base64
    return base64.b64encode(body).decode(), "base64"


ROUTES: Final = (
    Route(method="POST", path="/api/exchanges/{vhost}/{name}/publish", handler=_publish),
    Route(method="POST", path="/api/queues/{vhost}/{name}/get", handler=_get),
)
