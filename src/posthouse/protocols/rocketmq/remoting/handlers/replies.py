"""Replies to requests: pushed to the client that waits, and not stored.

A request is a message like any other, with the id of its client in a property that its reply repeats.
"""

from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.errors import AccessRefused, Unavailable, UnknownTopic
from posthouse.protocols.rocketmq.codec.codes import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    RequestCode,
    ResponseCode,
)
from posthouse.protocols.rocketmq.codec.hosts import unpack_host
from posthouse.protocols.rocketmq.codec.properties import decode_properties, encode_properties
from posthouse.protocols.rocketmq.messages import LONGEST_PROPERTIES
from posthouse.protocols.rocketmq.names import REPLY_TOPIC
from posthouse.protocols.rocketmq.remoting.call import Call
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.handlers.send import SHORT_NAMES

_NO_MESSAGE: Final = "0"
"""In place of an id: clients read one."""
_PASSED_ON: Final[tuple[str, ...]] = (
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "reconsumeTimes",
    "unitMode",
)


def reply_v2(call: Call) -> Coroutine[Any, Any, None]:
    """The same with short names."""
    fields = call.request.fields
    call.request.fields = {SHORT_NAMES.get(name, name): value for name, value in fields.items()}
    return reply(call)


def reply(call: Call) -> Coroutine[Any, Any, None]:
    name = call.text("topic")
    if name != REPLY_TOPIC:
        raise UnknownTopic(f"replies are sent to the topic {REPLY_TOPIC}, and not to {name!r}")
    if not call.connection.guard.allows(Operation.WRITE, Kind.TOPIC, REPLY_TOPIC):
        raise AccessRefused(f"no permission to write to topic {name!r}")
    text = call.request.fields.get("properties", "")
    if len(text.encode()) > LONGEST_PROPERTIES:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"properties of more than {LONGEST_PROPERTIES} bytes")
    properties = decode_properties(text)
    client = properties.get(REPLY_TO_CLIENT)
    if client is None:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"a reply without the property {REPLY_TO_CLIENT}")
    return _reply(call, client, properties)


async def _reply(call: Call, client: str, properties: dict[str, str]) -> None:
    connection, server = call.connection, call.connection.server
    waiting = server.clients.connection_of(client)
    if waiting is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the client {client!r} is not connected")
    now = str(server.broker.now_ms())
    sent = call.request.fields
    fields = {name: sent[name] for name in _PASSED_ON if name in sent}
    fields |= {
        "properties": encode_properties(properties | {PUSH_REPLY_TIME: now}),
        "bornHost": str(unpack_host(connection.host)),
        "storeHost": str(unpack_host(connection.own_host)),
        "storeTimestamp": now,
    }
    try:
        answer = await waiting.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, bytes(call.request.body))
    except Unavailable as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the client {client!r} does not take the reply")
    call.answer(
        fields={
            "msgId": _NO_MESSAGE,
            "queueId": str(max(call.number("queueId", 0), 0)),
            "queueOffset": "0",
        }
    )
