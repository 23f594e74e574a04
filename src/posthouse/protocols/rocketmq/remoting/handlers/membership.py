"""Heartbeats of clients, and who else is in their groups."""

from collections.abc import Coroutine, Sequence
from typing import Any

from posthouse.protocols.rocketmq.clients import compile_filter
from posthouse.protocols.rocketmq.codec.bodies import encode_consumer_list
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.codec.heartbeats import (
    CLUSTERING,
    PUSH,
    TAG_EXPRESSION,
    ConsumerGroup,
    Heartbeat,
    decode_heartbeat,
)
from posthouse.protocols.rocketmq.codec.lenient_json import decode_json
from posthouse.protocols.rocketmq.codec.members import Members
from posthouse.protocols.rocketmq.names import retry_topic
from posthouse.protocols.rocketmq.remoting.call import Call, check_may_consume
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.topics import RETRY_QUEUES


def heartbeat(call: Call) -> Coroutine[Any, Any, None] | None:
    beat = decode_heartbeat(call.request.body)
    for group in beat.consumer_groups:
        check_may_consume(call, group.name)
    call.connection.introduce(beat.client)
    topics = call.connection.server.topics
    lacking = [
        each
        for each in beat.consumer_groups
        if _retries(each) and topics.find(retry_topic(each.name)) is None
    ]
    if lacking:
        return _create_retry_topics(call, beat, lacking)
    _join(call, beat)
    return None


def _retries(group: ConsumerGroup) -> bool:
    """Whether the broker has its messages that are to be tried again."""
    return group.consume_type == PUSH and group.message_model == CLUSTERING


async def _create_retry_topics(call: Call, beat: Heartbeat, groups: Sequence[ConsumerGroup]) -> None:
    """Before the client joins: then it asks at once for its offsets there, and if there is no topic, not
    again for 20 s."""
    for group in groups:
        await call.connection.server.topics.obtain(retry_topic(group.name), RETRY_QUEUES)
    _join(call, beat)


def _join(call: Call, beat: Heartbeat) -> None:
    call.connection.server.clients.beat(call.connection, beat, len(call.request.body))
    call.answer()


def unregister(call: Call) -> None:
    fields = call.request.fields
    call.connection.server.clients.unregister(
        call.connection,
        call.text("clientID"),
        fields.get("producerGroup", ""),
        fields.get("consumerGroup", ""),
    )
    call.answer()


def members(call: Call) -> None:
    group = call.text("consumerGroup")
    check_may_consume(call, group)
    found = call.connection.server.clients.members(group)
    if not found:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no client consumes in the group {group!r}")
    call.answer(body=encode_consumer_list(found))


def check_filter(call: Call) -> None:
    """Clients ask before they subscribe by SQL."""
    subscription = Members(decode_json(call.request.body), "a check of a client").object("subscriptionData")
    compile_filter(subscription.text("expressionType", TAG_EXPRESSION), subscription.text("subString", "*"))
    call.answer()
