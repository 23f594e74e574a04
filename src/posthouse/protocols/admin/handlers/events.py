"""Server-sent events: changes of what the broker has, so that a page needs no polling."""

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.events import EventHub, EventStream
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.response import EVENT_STREAM, Response

_HEARTBEAT_SECONDS = 15.0
_RETRY_MS = 2000
_OF_CLUSTER: Final[Mapping[str, Operation]] = {
    **dict.fromkeys(("overview", "connections", "users", "acls", "brokers"), Operation.DESCRIBE),
    "quotas": Operation.DESCRIBE_CONFIGS,
}
"""Kinds that need a permission on the cluster; of others, each user sees what the ACLs allow."""


class EventsWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topics: Annotated[
        str,
        Meta(
            max_length=200,
            description="Kinds, separated by commas: overview, topics, groups, queues, connections, "
            "transactions, exchanges, bindings, users, acls, quotas, brokers. Empty: all that the user may "
            "see.",
        ),
    ] = ""


async def _events(context: CallContext, parameters: EventsWanted, body: NoBody) -> Response:
    kinds = _kinds(context, parameters.topics)
    if context.events.is_full:
        raise Problem(503, "too many clients listen to events; close one, or try again later")
    owner = context.owner
    if context.events.is_full_for(owner):
        raise Problem(429, f"too many clients of {owner} listen to events; close one")
    listener = EventStream(kinds, context.guard, owner)
    return Response(body=_stream(context.events, listener, kinds), content_type=EVENT_STREAM, is_endless=True)


def _kinds(context: CallContext, text: str) -> Sequence[str]:
    known = context.events.kinds
    if not text:
        return [kind for kind in known if _may_see(context, kind)]
    kinds = list(dict.fromkeys(text.split(",")))
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise Problem(400, f"there are no events of {unknown[0][:100]!r}; there are {', '.join(known)}")
    for kind in kinds:
        if kind in _OF_CLUSTER:
            context.require_cluster(_OF_CLUSTER[kind])
    return kinds


def _may_see(context: CallContext, kind: str) -> bool:
    operation = _OF_CLUSTER.get(kind)
    return operation is None or context.guard.may(operation, Kind.CLUSTER, CLUSTER)


async def _stream(hub: EventHub, listener: EventStream, kinds: Sequence[str]) -> AsyncIterator[bytes]:
    numbers = count(1)
    if hub.is_full or hub.is_full_for(listener.owner):
        return  # other streams of the owner have begun since the request was answered
    try:
        await hub.listen(listener)
        yield b"retry: %d\n" % _RETRY_MS + _event("ready", next(numbers), {"topics": kinds})
        while True:
            changes = await listener.next(_HEARTBEAT_SECONDS)
            if changes:
                yield b"".join(_event(kind, next(numbers), each) for kind, each in changes.items())
            else:
                yield b": \n\n"
    finally:
        hub.leave(listener)


def _event(kind: str, number: int, data: object) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), number, msgspec.json.encode(data))


EVENTS: Final = Endpoint(
    method="GET",
    path="/v1/events",
    summary="Changes as server-sent events, at most one a second of each kind",
    tag="events",
    description="An event has the kind as its name and JSON as its data: `added` and `changed` with "
    "summaries of objects, `removed` with names, `reload` where there were too many changes to "
    "list. The first event is `ready`: what is loaded after it, and changed by later events, is "
    "complete.",
    handler=_events,
    parameters=EventsWanted,
    result=str,
    content_type=EVENT_STREAM,
    problems=(429,),
)
