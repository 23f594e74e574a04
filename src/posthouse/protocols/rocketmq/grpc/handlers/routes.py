"""Where topics are: all queues of every topic are here, at the address that the client has used."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.errors import UnknownTopic
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.grpc.converting import name_of
from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Address,
    Assignment,
    Broker,
    Endpoints,
    MessageQueue,
    Resource,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import AddressScheme, MessageType, Permission
from posthouse.protocols.rocketmq.grpc.messages.service import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc
from posthouse.protocols.rocketmq.grpc.statuses import OK
from posthouse.protocols.rocketmq.names import BROKER, topic_name
from posthouse.protocols.rocketmq.topics import DEFAULT_QUEUES

_TYPES: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
"""A topic takes messages with priorities, too, which is not said to all: clients in Java up to 5.1.0 fail on
a type that they do not know, and producers are told not to check types."""
_WITH_PRIORITY: Final = (*_TYPES, MessageType.PRIORITY)
_PYTHON: Final = "PYTHON"
"""The language of a client that may send before it has read that it is not to check types. Outside of its
main thread it fails on a route that comes before it waits for it (rocketmq-python-client 5.1)."""
_PYTHON_SECONDS: Final = 0.05
_ANY_QUEUE: Final = -1


def query_route(
    rpc: Rpc, request: QueryRouteRequest, answer: Answer[QueryRouteResponse]
) -> Coroutine[Any, Any, None] | None:
    """A topic that does not exist is created, as for Kafka's clients that ask for its metadata."""
    name = name_of(request.topic)
    permission = _permission(rpc, name)
    if rpc.session.software.name == _PYTHON:
        return _answer_later(rpc, request, answer, name, permission)
    topic = rpc.server.topics.find_settled(name)
    if topic is None:
        return _create(rpc, request, answer, name, permission)
    _answer_route(rpc, request, answer, topic, permission)
    return None


async def _answer_later(
    rpc: Rpc,
    request: QueryRouteRequest,
    answer: Answer[QueryRouteResponse],
    name: str,
    permission: Permission,
) -> None:
    await asyncio.sleep(_PYTHON_SECONDS)
    topic = rpc.server.topics.find_settled(name)
    if topic is None:
        await _create(rpc, request, answer, name, permission)
    else:
        _answer_route(rpc, request, answer, topic, permission, _WITH_PRIORITY)


def _permission(rpc: Rpc, name: str) -> Permission:
    """Raises AccessRefused, whether there is a topic or not, and InvalidTopicName."""
    stored = topic_name(name)
    may_read = rpc.guard.may(Operation.READ, Kind.TOPIC, stored)
    if rpc.guard.may(Operation.WRITE, Kind.TOPIC, stored):
        return Permission.READ_WRITE if may_read else Permission.WRITE
    rpc.check_topic(name, Operation.READ)
    return Permission.READ


async def _create(
    rpc: Rpc,
    request: QueryRouteRequest,
    answer: Answer[QueryRouteResponse],
    name: str,
    permission: Permission,
) -> None:
    def check() -> None:
        if not rpc.guard.allows(Operation.CREATE, Kind.TOPIC, topic_name(name)):
            raise UnknownTopic(f"there is no topic {name!r}, and no permission to create it")

    topic = await rpc.server.topics.obtain(name, DEFAULT_QUEUES, check)
    types = _WITH_PRIORITY if rpc.session.software.name == _PYTHON else _TYPES
    _answer_route(rpc, request, answer, topic, permission, types)


def _answer_route(
    rpc: Rpc,
    request: QueryRouteRequest,
    answer: Answer[QueryRouteResponse],
    topic: Topic,
    permission: Permission,
    types: tuple[MessageType, ...] = _TYPES,
) -> None:
    queues = tuple(
        _queue(rpc, request.topic, request.endpoints, partition, permission, types)
        for partition in range(topic.partitions)
    )
    answer.give(QueryRouteResponse(status=OK, message_queues=queues))


def query_assignment(
    rpc: Rpc, request: QueryAssignmentRequest, answer: Answer[QueryAssignmentResponse]
) -> None:
    """Every consumer of a group gets messages of all queues: who has which is decided by the leases. Those of
    an ordered group ask each queue by itself."""
    group = rpc.group(request.group)
    topic = rpc.topic(request.topic, Operation.READ)
    ids = range(topic.partitions) if rpc.server.groups.is_ordered(group) else (_ANY_QUEUE,)
    permission = _permission(rpc, name_of(request.topic))
    assignments = tuple(
        Assignment(message_queue=_queue(rpc, request.topic, request.endpoints, id, permission)) for id in ids
    )
    answer.give(QueryAssignmentResponse(status=OK, assignments=assignments))


def _queue(
    rpc: Rpc,
    topic: Resource | None,
    endpoints: Endpoints | None,
    id: int,
    permission: Permission,
    types: tuple[MessageType, ...] = (),
) -> MessageQueue:
    return MessageQueue(
        topic=topic,
        id=id,
        permission=permission,
        broker=Broker(name=BROKER, id=0, endpoints=endpoints or _own_endpoints(rpc)),
        accept_message_types=types,
    )


def _own_endpoints(rpc: Rpc) -> Endpoints:
    address = rpc.session.connection.address
    scheme = AddressScheme.IPv6 if ":" in address.host else AddressScheme.IPv4
    return Endpoints(scheme=scheme, addresses=(Address(host=address.host, port=address.port),))
