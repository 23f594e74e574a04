"""Messages of queues: looked at, moved to another queue, and requeued where they died."""

import base64
import json
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.moving import Moved
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.record_headers import DEATHS, EXCHANGE
from posthouse.model.errors import CorruptBatch
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.handlers.queues import OPERATOR, OfQueue, QueueName, find
from posthouse.protocols.admin.payloads import without_broken_end
from posthouse.protocols.admin.turns import in_turns
from posthouse.records.header_section import decode_section

_MOST_PEEKED = 500
_MOST_VALUE_BYTES = 4 * 1024 * 1024
_MOST_MOVED = 1_000_000
_DEPTH = 4
"""Of an entry about a death; the broker's own have a list in an object."""
_PROPERTY = "amqp."
_RAW_PROPERTIES = "amqp.properties"
"""Those of the other headers with this prefix say the same in a readable form."""


class Peek(OfQueue, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=_MOST_PEEKED, description="Most messages.")] = 10
    value_bytes: Annotated[
        int, Meta(ge=0, le=_MOST_VALUE_BYTES, description="Most bytes that are shown of one body.")
    ] = 64 * 1024


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    encoding: Literal["text", "base64"]
    data: str
    size: Annotated[int, Meta(description="Bytes of the whole body.")]
    truncated: Annotated[bool, Meta(description="`data` has only the beginning.")] = False


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    position: Annotated[int, Meta(description="Of the message in its queue; for a stream, its offset.")]
    routing_key: str
    exchange: Annotated[str, Meta(description="That the message was published to.")]
    body: Body
    properties: Annotated[dict[str, str], Meta(description="content-type, message-id and so on.")]
    headers: Annotated[dict[str, Any], Meta(description="As the publisher set them, as text.")]
    deaths: Annotated[list[Any], Meta(description="Of a dead letter: where and why it died, newest first.")]
    redelivered: bool
    deliveries: Annotated[int, Meta(description="How often the message was delivered and came back.")]
    timestamp: Annotated[int, Meta(description="Of its publishing, in milliseconds since 1970.")]
    age_ms: int


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[MessageView]
    more: Annotated[
        int,
        Meta(description="Messages that are ready, too: there are more than `limit`, or bodies are large."),
    ]


class MoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: QueueName
    limit: Annotated[int, Meta(ge=1, le=_MOST_MOVED, description="Most messages; the oldest go.")] = 1000


class RequeueBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=_MOST_MOVED, description="Most dead letters.")] = 1000


class MovedView(msgspec.Struct, frozen=True, kw_only=True):
    moved: int
    to: Annotated[dict[str, int], Meta(description="How many came to each queue.")]
    left: Annotated[int, Meta(description="Messages that were looked at and stay where they are.")]
    reason: Annotated[str, Meta(description="Why the last of these stays.")]


async def _peek(context: CallContext, parameters: Peek, body: NoBody) -> Messages:
    namespace, queue = find(context, Operation.READ, parameters)
    found = await queue.peek(parameters.limit)
    now = context.broker.now_ms()
    limit = parameters.value_bytes
    return Messages(
        messages=[_view(namespace, message, now, limit) async for message in in_turns(found)],
        more=max(queue.lengths[0] - len(found), 0),
    )


def _view(namespace: Namespace, message: Message, now_ms: int, value_bytes: int) -> MessageView:
    properties: dict[str, str] = {}
    headers: dict[str, Any] = {}
    deaths: list[Any] = []
    for name, value in _headers(message):
        if name == DEATHS.decode():
            deaths = _deaths(value)
        elif name.startswith(_PROPERTY):
            if name != _RAW_PROPERTIES:
                properties[name.removeprefix(_PROPERTY)] = (value or b"").decode(errors="replace")
        elif name != EXCHANGE.decode():
            headers[name] = None if value is None else value.decode(errors="replace")
    return MessageView(
        position=message.position,
        routing_key=(message.key or b"").decode(errors="replace"),
        exchange=namespace.exchange_of(message),
        body=_body(message.value or b"", value_bytes),
        properties=properties,
        headers=headers,
        deaths=deaths,
        redelivered=message.redelivered,
        deliveries=message.deliveries,
        timestamp=message.timestamp,
        age_ms=max(now_ms - message.timestamp, 0),
    )


def _headers(message: Message) -> Iterable[tuple[str, bytes | None]]:
    try:
        found = decode_section(message.headers)
    except CorruptBatch:
        return ()  # headers are as their producer wrote them
    return [(name.decode(errors="replace"), value) for name, value in found]


def _deaths(note: bytes | None) -> list[Any]:
    try:
        deaths = json.loads(note or b"[]")
    except (ValueError, RecursionError):
        return []
    return [_shown(death) for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []


def _shown(value: object, depth: int = _DEPTH) -> object:
    """A value that can be sent: a producer of Kafka may have written lone surrogates, or lists in lists."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict() if depth:
            return {_shown(name): _shown(each, depth - 1) for name, each in value.items()}
        case list() if depth:
            return [_shown(each, depth - 1) for each in value]
        case bool() | float():
            return value
        case int():
            return value if abs(value) < 2**63 else None
        case _:
            return None


def _body(value: bytes, limit: int) -> Body:
    size, is_cut = len(value), len(value) > limit
    beginning = value[:limit]
    try:
        text = (without_broken_end(beginning) if is_cut else beginning).decode()
        return Body(encoding="text", data=text, size=size, truncated=is_cut)
    except UnicodeDecodeError:
        data = base64.b64encode(beginning).decode()
        return Body(encoding="base64", data=data, size=size, truncated=is_cut)


async def _move(context: CallContext, parameters: OfQueue, body: MoveBody) -> MovedView:
    namespace, _ = find(context, Operation.READ, parameters)
    source = namespace.queue(parameters.queue, OPERATOR)
    context.require(Operation.WRITE, Kind.TOPIC, namespace.topic_of(body.to))
    target = namespace.queue(body.to, OPERATOR)
    context.guard.note("move", f"{Kind.TOPIC}:{source.backing.name}", f"to {target.backing.name}")
    moved = await context.broker.namespaces.mover(namespace).move(source, target, body.limit)
    return _moved(moved)


async def _requeue(context: CallContext, parameters: OfQueue, body: RequeueBody) -> MovedView:
    namespace, _ = find(context, Operation.READ, parameters)
    source = namespace.queue(parameters.queue, OPERATOR)
    context.guard.note("requeue", f"{Kind.TOPIC}:{source.backing.name}")

    def may_reach(queue: LogQueue) -> bool:
        return context.guard.may(Operation.WRITE, Kind.TOPIC, queue.backing.name)

    moved = await context.broker.namespaces.mover(namespace).requeue(source, body.limit, may_reach)
    return _moved(moved)


def _moved(moved: Moved) -> MovedView:
    return MovedView(moved=moved.count, to=dict(moved.to), left=moved.left, reason=moved.reason)


QUEUE_MESSAGES: Final = (
    Endpoint(
        method="GET",
        path="/v1/queues/{namespace}/{queue}/messages",
        summary="Look at the messages that are delivered next, without taking them",
        tag="queues",
        handler=_peek,
        parameters=Peek,
        result=Messages,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/{namespace}/{queue}/move",
        summary="Move the oldest messages to another queue",
        tag="queues",
        handler=_move,
        parameters=OfQueue,
        body=MoveBody,
        result=MovedView,
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/{namespace}/{queue}/requeue",
        summary="Move dead letters back to the queue that each came from",
        tag="queues",
        handler=_requeue,
        parameters=OfQueue,
        body=RequeueBody,
        result=MovedView,
        problems=(404, 409),
    ),
)
