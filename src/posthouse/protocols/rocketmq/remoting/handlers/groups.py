"""Groups, as tools list, create and delete them. A group is there by its offsets, its members or its topic of
retries; how it consumes is decided by its consumers."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.broker import Broker
from posthouse.broker.protocol_members import FilterText, ProtocolMember
from posthouse.model.ids import GroupId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.administration import (
    DEFAULT_RETRIES,
    GroupConfiguration,
    decode_group_configuration,
    encode_group_configuration,
    encode_group_configurations,
    encode_group_list,
    encode_subscription,
)
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.codec.heartbeats import TAG_EXPRESSION, Subscription
from posthouse.protocols.rocketmq.codec.routes import encode_topic_list
from posthouse.protocols.rocketmq.names import RETRY, check_group_name, client_name, retry_topic
from posthouse.protocols.rocketmq.remoting.call import (
    Call,
    check_allowed,
    check_may_consume,
    check_may_describe,
)
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.handlers.topics import undisturbed_deletion
from posthouse.protocols.rocketmq.remoting.server import RemotingServer

_EVERYTHING: Final = FilterText(TAG_EXPRESSION, "*")
_GROUPS_PER_TURN: Final = 500
_FIFO: Final = "rocketmq.fifo.enable"
_DELIVERIES: Final = "share.delivery.count.limit"
_FACTOR: Final = "rocketmq.priority.factor"
_FACTOR_ATTRIBUTE: Final = "priority.factor"
MOST_RETRIES_OF_GROUP: Final = 0xFFFE


def create(call: Call) -> Coroutine[Any, Any, None]:
    wanted = decode_group_configuration(call.request.body)
    check_may_consume(call, wanted.name)
    _check_plain(wanted)
    changes = _changes(call.connection.server, wanted)
    if changes:
        check_allowed(call, Operation.ALTER_CONFIGS, Kind.GROUP, wanted.name)
    return _create(call, wanted.name, changes)


def _check_plain(wanted: GroupConfiguration) -> None:
    """Raises Refused for what would not be as it says."""
    reason = None
    if not wanted.may_consume:
        reason = "a group always may consume; take away the permission of its clients"
    elif not 0 <= wanted.retries <= MOST_RETRIES_OF_GROUP:
        reason = f"a message can come again 0 to {MOST_RETRIES_OF_GROUP} times"
    elif wanted.has_retry_policy:
        reason = "when a message comes again is decided by its consumers"
    elif wanted.retry_queues != 1:
        reason = "a group has one queue of retries"
    elif wanted.attributes.keys() - {f"+{_FACTOR_ATTRIBUTE}"}:
        reason = f"groups have no attributes but {_FACTOR_ATTRIBUTE}"
    if reason is not None:
        raise Refused(ResponseCode.INVALID_PARAMETER, reason)


def _changes(server: RemotingServer, wanted: GroupConfiguration) -> dict[str, str]:
    """Settings of the group, which consumers of the gRPC protocol go by. Those of this protocol decide for
    themselves."""
    known = _configuration(server, wanted.name)
    changes: dict[str, str] = {}
    if wanted.is_ordered != known.is_ordered:
        changes[_FIFO] = str(wanted.is_ordered).lower()
    if wanted.retries != known.retries:
        changes[_DELIVERIES] = str(wanted.retries + 1)
    factor = wanted.attributes.get(f"+{_FACTOR_ATTRIBUTE}")
    if factor is not None and factor != known.attributes.get(_FACTOR_ATTRIBUTE):
        changes[_FACTOR] = factor
    return changes


def _configuration(server: RemotingServer, group: str) -> GroupConfiguration:
    configs = server.broker.group_configs
    overrides = configs.overrides(GroupId(group))
    deliveries, factor = overrides.get(_DELIVERIES), overrides.get(_FACTOR)
    return GroupConfiguration(
        name=group,
        retries=DEFAULT_RETRIES if deliveries is None else int(deliveries) - 1,
        is_ordered=configs.get(GroupId(group)).rocketmq_fifo_enable,
        attributes={} if factor is None else {_FACTOR_ATTRIBUTE: factor},
    )


async def _create(call: Call, group: str, changes: dict[str, str]) -> None:
    if changes:
        configs = call.connection.server.broker.group_configs
        await configs.change(GroupId(group), lambda own: {**own, **changes})
    await call.connection.server.topics.obtain(retry_topic(group), 1)
    call.answer()


def delete(call: Call) -> Coroutine[Any, Any, None]:
    group = call.text("groupName")
    check_group_name(group)
    check_allowed(call, Operation.DELETE, Kind.GROUP, group)
    members = call.connection.server.broker.protocol_members.of(GroupId(group))
    if members:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{len(members)} clients consume in the group {group!r}; stop them and try again",
        )
    return _delete(call, GroupId(group), with_progress=call.truth("cleanOffset"))


async def _delete(call: Call, group: GroupId, *, with_progress: bool) -> None:
    """Its dead letters stay: tools delete them, in a request of its own."""
    server = call.connection.server
    broker = server.broker
    topic = server.topics.find(retry_topic(group))
    has_offsets, is_leased = broker.groups.offsets.has(group), group in broker.subscriptions
    if topic is None and not (has_offsets or is_leased):
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no group {group!r}")
    if topic is None and not with_progress:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"all there is of the group {group!r} is how far it has come; -r true deletes that, too",
        )
    if with_progress and is_leased:
        await broker.subscriptions.delete(group)
    if with_progress and has_offsets:
        await broker.groups.delete(group)
    if topic is not None:
        await undisturbed_deletion(call, topic)
    call.answer()


def configurations(call: Call) -> None:
    guard = call.connection.guard
    server = call.connection.server
    found = [_configuration(server, each) for each in _all(server) if guard.sees(Kind.GROUP, each)]
    call.answer(body=encode_group_configurations(found))


def configuration(call: Call) -> None:
    group = call.text("group")
    check_allowed(call, Operation.DESCRIBE, Kind.GROUP, group)
    if not exists(call.connection.server, group):
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no group {group!r}")
    call.answer(body=encode_group_configuration(_configuration(call.connection.server, group)))


def _all(server: RemotingServer) -> list[str]:
    stored = [str(each) for each in server.broker.groups.offsets.groups()]
    created = [
        client_name(each.name).removeprefix(RETRY)
        for each in server.broker.topics
        if client_name(each.name).startswith(RETRY)
    ]
    received = [str(each) for each in server.broker.subscriptions]
    return sorted({*stored, *created, *received, *server.broker.protocol_members.groups()})


def exists(server: RemotingServer, group: str) -> bool:
    return (
        server.broker.groups.offsets.has(GroupId(group))
        or GroupId(group) in server.broker.subscriptions
        or server.topics.find(retry_topic(group)) is not None
        or bool(server.broker.protocol_members.of(GroupId(group)))
    )


def others(server: RemotingServer, group: str) -> list[ProtocolMember]:
    """Members that use another protocol."""
    return server.broker.protocol_members.of(GroupId(group), besides=server.members)


def subscriptions_of(member: ProtocolMember) -> list[Subscription]:
    """Of a member that uses another protocol."""
    return [
        Subscription(
            topic=client_name(topic),
            expression=filter.text,
            expression_type=filter.language,
        )
        for topic in sorted(member.topics)
        for filter in [member.filters.get(topic, _EVERYTHING)]
    ]


def topics_of(server: RemotingServer, group: str) -> list[Topic]:
    """Those that the group has read, or that its members subscribe to; in order of their names."""
    broker, id = server.broker, GroupId(group)
    partitions = (*broker.groups.offsets.partitions(id), *broker.subscriptions.progress(id))
    read = {each.topic for each in partitions}
    subscribed = {name for member in broker.protocol_members.of(id) for name in member.topics}
    found = [*map(broker.topics.find_by_id, read), *map(broker.topics.find, subscribed)]
    known = {topic.name: topic for topic in found if topic is not None}
    return [known[name] for name in sorted(known)]


def topics(call: Call) -> None:
    group = call.text("group")
    check_allowed(call, Operation.DESCRIBE, Kind.GROUP, group)
    guard = call.connection.guard
    found = [
        client_name(each.name)
        for each in topics_of(call.connection.server, group)
        if guard.sees(Kind.TOPIC, each.name)
    ]
    call.answer(body=encode_topic_list(found))


def of_topic(call: Call) -> Coroutine[Any, Any, None]:
    name = call.text("topic")
    topic = call.connection.server.topics.get(name)
    check_may_describe(call, name)
    return _of_topic(call, topic)


async def _of_topic(call: Call, topic: Topic) -> None:
    server, guard = call.connection.server, call.connection.guard
    found = []
    for count, group in enumerate(_all(server)):
        if guard.sees(Kind.GROUP, group) and _reads(server.broker, GroupId(group), topic):
            found.append(group)
        if count % _GROUPS_PER_TURN == _GROUPS_PER_TURN - 1:
            await asyncio.sleep(0)
    call.answer(body=encode_group_list(found))


def _reads(broker: Broker, group: GroupId, topic: Topic) -> bool:
    """Whether the group has read the topic, or a member of it subscribes to that."""
    read = (*broker.groups.offsets.partitions(group), *broker.subscriptions.progress(group))
    if any(each.topic == topic.id for each in read):
        return True
    return any(topic.name in member.topics for member in broker.protocol_members.of(group))


def subscription(call: Call) -> None:
    group, name = call.text("group"), call.text("topic")
    check_allowed(call, Operation.DESCRIBE, Kind.GROUP, group)
    server = call.connection.server
    for member in server.clients.consumers(group):
        for each in member.group.subscriptions:
            if each.topic == name:
                call.answer(body=encode_subscription(group, each))
                return
    for other in others(server, group):
        for each in subscriptions_of(other):
            if each.topic == client_name(name):
                call.answer(body=encode_subscription(group, each))
                return
    raise Refused(
        ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no client of the group {group!r} has subscribed to {name!r}"
    )
