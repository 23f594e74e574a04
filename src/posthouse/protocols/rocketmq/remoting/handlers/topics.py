"""Topics, as tools for operators list, create, grow and delete them."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import AccessRefused, PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.administration import encode_topic_configurations
from posthouse.protocols.rocketmq.codec.codes import Permission, ResponseCode
from posthouse.protocols.rocketmq.codec.routes import (
    TopicConfiguration,
    encode_topic_configuration,
    encode_topic_list,
)
from posthouse.protocols.rocketmq.names import (
    SYSTEM_TOPICS,
    check_may_create,
    client_name,
    is_of_group,
    topic_name,
)
from posthouse.protocols.rocketmq.priorities import SETTING
from posthouse.protocols.rocketmq.remoting.call import Call, check_allowed, check_may_describe
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.topics import new_topic

_READ_AND_WRITE: Final = int(Permission.READ | Permission.WRITE)
_TYPE: Final = "+message.type="
"""An attribute: upstream's topics take messages of one type only, those of Posthouse of any. Only PRIORITY
says something of consumers, too."""
_PRIORITY: Final = "PRIORITY"
_LITE: Final = "LITE"


def names(call: Call) -> None:
    call.answer(body=encode_topic_list(client_name(each.name) for each in _visible(call)))


def system_names(call: Call) -> None:
    call.answer(body=encode_topic_list(SYSTEM_TOPICS))


def configurations(call: Call) -> None:
    call.answer(body=encode_topic_configurations(_configuration(each) for each in _visible(call)))


def configuration(call: Call) -> None:
    name = call.text("topic")
    topic = call.connection.server.topics.get(name)
    check_may_describe(call, name)
    call.answer(body=encode_topic_configuration(_configuration(topic)))


def _visible(call: Call) -> list[Topic]:
    guard = call.connection.guard
    return [each for each in call.connection.server.broker.topics if guard.sees(Kind.TOPIC, each.name)]


def _configuration(topic: Topic) -> TopicConfiguration:
    return TopicConfiguration(
        name=client_name(topic.name),
        read_queues=topic.partitions,
        write_queues=topic.partitions,
        attributes={_TYPE.strip("+="): _PRIORITY} if topic.config.rocketmq_priority_enable else {},
    )


def create_or_grow(call: Call) -> Coroutine[Any, Any, None]:
    name = call.text("topic")
    check_may_create(name)
    queues = _queues(call)
    types = _types(call)
    topic = call.connection.server.topics.find(name)
    stored = topic_name(name)
    if topic is None:
        if not call.connection.guard.allows_here_or_everywhere(Operation.CREATE, Kind.TOPIC, stored):
            raise AccessRefused(f"no permission to create topic {name!r}")
        return _create(call, stored, queues, {SETTING: "true"} if _PRIORITY in types else {})
    if queues < topic.partitions:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"topic {name!r} has {topic.partitions} queues, and cannot have only {queues}",
        )
    check_allowed(call, Operation.ALTER, Kind.TOPIC, stored)
    gets_priorities = _PRIORITY in types and not topic.config.rocketmq_priority_enable
    if gets_priorities:
        check_allowed(call, Operation.ALTER_CONFIGS, Kind.TOPIC, stored)
    return _alter(call, topic, queues, gets_priorities=gets_priorities)


def _queues(call: Call) -> int:
    """The number that is asked for. Raises Refused for what no topic can be."""
    queues = call.number("writeQueueNums")
    if call.number("readQueueNums", queues) != queues:
        raise Refused(ResponseCode.INVALID_PARAMETER, "a queue is read and written: the two numbers differ")
    if call.number("perm", _READ_AND_WRITE) != _READ_AND_WRITE:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"a topic has the permission {_READ_AND_WRITE}; who may read and write is for ACLs to say",
        )
    if call.truth("order"):
        raise Refused(
            ResponseCode.INVALID_PARAMETER, "a topic has no order of its own: each queue keeps its order"
        )
    return queues


def _types(call: Call) -> list[str]:
    """Of messages, as the attributes say. Raises Refused for other attributes, and for a type that no topic
    takes."""
    types: list[str] = []
    for attribute in filter(None, call.request.fields.get("attributes", "").split(",")):
        if not attribute.startswith(_TYPE):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"there is no attribute {attribute[:50]!r}")
        types.append(attribute.removeprefix(_TYPE))
    if _LITE in types:
        raise Refused(ResponseCode.INVALID_PARAMETER, "lite topics are not supported")
    return types


async def _create(call: Call, stored: str, queues: int, overrides: Mapping[str, str]) -> None:
    [created] = await call.connection.server.broker.create_topics([new_topic(stored, queues, overrides)])
    if isinstance(created, PosthouseError):
        raise created
    call.answer()


async def _alter(call: Call, topic: Topic, queues: int, *, gets_priorities: bool) -> None:
    broker = call.connection.server.broker
    if queues > topic.partitions:
        await broker.create_partitions(topic.name, queues)
    if gets_priorities:
        await broker.configure_topic(topic.name, lambda current: {**current.overrides, SETTING: "true"})
    call.answer()


def delete(call: Call) -> Coroutine[Any, Any, None]:
    name = call.text("topic")
    check_allowed(call, Operation.DELETE, Kind.TOPIC, topic_name(name))
    return _delete(call, name)


async def _delete(call: Call, name: str) -> None:
    topics = call.connection.server.topics
    # Tools that delete a group delete its topics, too, and ask for all that there may be.
    topic = topics.find(name) if is_of_group(name) else topics.get(name)
    if topic is not None:
        await undisturbed_deletion(call, topic)
    call.answer()


async def undisturbed_deletion(call: Call, topic: Topic) -> None:
    """Also if the client disconnects meanwhile."""
    await undisturbed(asyncio.ensure_future(call.connection.server.broker.delete_topics([topic])))


def delete_route(call: Call) -> None:
    """Tools ask the name server for it after they have deleted a topic. It ends with the topic."""
    name = call.text("topic")
    check_allowed(call, Operation.DELETE, Kind.TOPIC, topic_name(name))
    if call.connection.server.topics.find(name) is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"topic {name!r} exists; delete it in the broker (215)")
    call.answer()


def delete_order(call: Call) -> None:
    """Tools delete what the name server may know of the order of a topic, when they have deleted the topic.
    No topic has an order of its own, so there is nothing to delete."""
    call.text("key")
    call.answer()
