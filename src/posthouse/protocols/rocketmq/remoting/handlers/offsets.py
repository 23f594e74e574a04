"""Offsets of groups, and of queues by time. Groups of RocketMQ are groups of the broker, as Kafka's are."""

import logging
from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.first_offsets import begins_at_start
from posthouse.protocols.rocketmq.remoting.call import Call, Caller, check_may_consume, described_topic
from posthouse.protocols.rocketmq.remoting.errors import Refused

log = logging.getLogger(__name__)

_NOBODY: Final = MemberIdentity(member=MemberId(""))
_AGAIN_MS: Final = 3_600_000
"""Clients repeat all offsets every 5 s. One that has not changed is stored once an hour, which keeps it."""


def query(call: Call) -> Coroutine[Any, Any, None]:
    return _query(call, _group(call), *_queue(call))


async def _query(call: Call, group: str, topic: Topic, partition: int) -> None:
    broker = call.connection.server.broker
    id = GroupId(group)
    broker.groups.offsets.check_kind(id)
    await broker.groups.offsets.landed(id)
    committed = broker.groups.offsets.get(id, topic.partition(partition))
    if committed is not None:
        call.answer(fields={"offset": str(committed.offset)})
    elif begins_at_start(broker, topic, partition):
        call.answer(fields={"offset": "0"})
    else:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, f"the group {group!r} has no offset there")


def update(call: Call) -> Coroutine[Any, Any, None]:
    group = _group(call)
    topic, partition = _queue(call)
    offset = call.number("commitOffset")
    if offset < 0:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no offset {offset}")
    return _update(call, group, NewOffset(partition=topic.partition(partition), offset=offset))


async def _update(call: Call, group: str, new: NewOffset) -> None:
    server = call.connection.server
    if _is_wanted(call.connection, group, new):
        [wrong] = await server.broker.groups.offsets.commit(GroupId(group), _NOBODY, [new], is_progress=True)
        if wrong is not None:
            raise wrong
    call.answer()


def commit(connection: Caller, group: str, new: NewOffset) -> None:
    """Without an answer: if it fails, the client commits a later one soon."""
    if not _is_wanted(connection, group, new):
        return
    committing = connection.server.broker.groups.offsets.commit(
        GroupId(group), _NOBODY, [new], is_progress=True
    )

    def ended(done: Any) -> None:
        error = done.exception() or done.result()[0]
        if isinstance(error, PosthouseError):
            log.warning(
                "group %s: offset %d of %s is not committed: %s", group, new.offset, new.partition, error
            )
        elif error is not None:
            log.error("group %s: an offset is not committed", group, exc_info=error)

    committing.add_done_callback(ended)


def _is_wanted(connection: Caller, group: str, new: NewOffset) -> bool:
    """Whether it is new, and not from before the group was reset."""
    server = connection.server
    if (
        group in server.resets
        and server.clients.shares_offsets(connection, group)
        and server.resets.drops(group, new.partition, new.offset)
    ):
        return False
    offsets = server.broker.groups.offsets
    known = offsets.get(GroupId(group), new.partition)
    if known is None or known.offset != new.offset or offsets.are_in_flight(GroupId(group)):
        return True  # what is in flight may be an older offset of this queue, which must not win
    return server.broker.now_ms() - known.committed_ms >= _AGAIN_MS


def get_max(call: Call) -> None:
    topic, partition = _queue(call)
    call.answer(fields={"offset": str(call.connection.server.broker.bounds(topic, partition).stable)})


def get_min(call: Call) -> None:
    topic, partition = _queue(call)
    call.answer(fields={"offset": str(call.connection.server.broker.bounds(topic, partition).start)})


def search(call: Call) -> Coroutine[Any, Any, None]:
    return _search(call, *_queue(call), call.number("timestamp"))


async def _search(call: Call, topic: Topic, partition: int, timestamp: int) -> None:
    """The first message that was stored then or later; the end if there is none."""
    broker = call.connection.server.broker
    found = await broker.find_timestamp(topic, partition, timestamp)
    stable = broker.bounds(topic, partition).stable
    offset = stable if found is None else min(found.offset, stable)
    call.answer(fields={"offset": str(offset)})


def _group(call: Call) -> str:
    group = call.text("consumerGroup")
    check_may_consume(call, group)
    return group


def _queue(call: Call) -> tuple[Topic, int]:
    topic = described_topic(call, call.text("topic"))
    partition = call.number("queueId")
    topic.existing_partition(partition)
    return topic, partition
