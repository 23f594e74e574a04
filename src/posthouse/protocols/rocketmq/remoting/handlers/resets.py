"""A group is moved to other offsets, also while its consumers run: see `offset_resets`."""

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from posthouse.broker.access.commit_permission import missing_to_commit
from posthouse.broker.access.operations import Kind
from posthouse.broker.broker import Broker
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.model.errors import AccessRefused
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue, encode_offset_list, encode_offset_table
from posthouse.protocols.rocketmq.codec.codes import CPP, ResponseCode
from posthouse.protocols.rocketmq.names import BROKER
from posthouse.protocols.rocketmq.remoting.call import Call, check_may_consume
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.handlers.groups import exists

_TOOL: Final = MemberIdentity(member=MemberId(""))
_ALL: Final = -1
_NONE: Final = -1


def reset(call: Call) -> Coroutine[Any, Any, None]:
    group, name = call.text("group"), call.text("topic")
    check_may_consume(call, group)
    server = call.connection.server
    topic = server.topics.get(name)
    missing = missing_to_commit(call.connection.guard, group, topic.name)
    if missing is not None:
        raise AccessRefused(f"no permission to {missing} topic {name!r}")
    if not exists(server, group):
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no group {group!r}")
    queue = call.number("queueId", _ALL)
    if queue != _ALL:
        topic.existing_partition(queue)
        return _reset(call, group, name, topic, [queue], call.number("offset", _NONE))
    return _reset(call, group, name, topic, range(topic.partitions), _NONE)


async def _reset(call: Call, group: str, name: str, topic: Topic, queues: Sequence[int], offset: int) -> None:
    broker = call.connection.server.broker
    id = GroupId(group)
    timestamp = call.number("timestamp", _NONE)
    may_go_forward = call.request.fields.get("isForce", "true").lower() == "true"
    await broker.groups.offsets.landed(id)
    table: dict[MessageQueue, int] = {}
    new: dict[PartitionId, int] = {}
    for queue in queues:
        wanted = await _offset(call, topic, queue, offset, timestamp)
        partition = topic.partition(queue)
        before = _before(broker, id, partition)
        if may_go_forward or before is None or wanted < before:
            new[partition] = wanted
        else:
            wanted = before
        table[MessageQueue(topic=name, broker=BROKER, queue=queue)] = wanted
    if new:
        call.connection.guard.note("reset", f"{Kind.GROUP}:{group}", f"topic {topic.name}")
        if id in broker.subscriptions:
            await broker.subscriptions.reset(id, new)
        else:
            offsets = [NewOffset(partition=each, offset=offset) for each, offset in new.items()]
            await broker.groups.offsets.commit_in_turns(id, _TOOL, offsets)
    encode = encode_offset_list if call.request.language == CPP else encode_offset_table
    call.answer(body=encode(table))


def _before(broker: Broker, group: GroupId, partition: PartitionId) -> int | None:
    """None if the group has read nothing there."""
    if group in broker.subscriptions:
        subscribed = broker.subscriptions.find(group, partition)
        return None if subscribed is None else subscribed.progress.floor
    committed = broker.groups.offsets.get(group, partition)
    return None if committed is None else committed.offset


async def _offset(call: Call, topic: Topic, queue: int, offset: int, timestamp: int) -> int:
    """The offset that is asked for; else the first message of this time or later; else the end."""
    broker = call.connection.server.broker
    bounds = broker.bounds(topic, queue)
    if offset != _NONE:
        if not bounds.start <= offset <= bounds.stable:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queue {queue} has the offsets {bounds.start} to {bounds.stable}, and no {offset}",
            )
        return offset
    if timestamp < 0:
        return bounds.stable
    at = await broker.find_timestamp(topic, queue, timestamp)
    stable = broker.bounds(topic, queue).stable
    return stable if at is None else min(at.offset, stable)
