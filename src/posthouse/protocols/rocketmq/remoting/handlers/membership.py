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
    decode_heartbeat,
)
from posthouse.protocols.rocketmq.codec.lenient_json import decode_json
from posthouse.protocols.rocketmq.codec.members import Members
from posthouse.protocols.rocketmq.names import retry_topic
from posthouse.protocols.rocketmq.remoting.call import Call, check_may_consume
from posthouse.protocols.rocketmq.remoting.errors import Refused


def heartbeat(call: Call) -> Coroutine[Any, Any, None] | None:
    beat = decode_heartbeat(call.request.body)
    for group in beat.consumer_groups:
        check_may_consume(call, group.name)
    server = call.connection.server
    call.connection.introduce(beat.client)
    joined = server.clients.beat(call.connection, beat, len(call.request.body))
    topics = server.topics
    lacking = [each for each in joined if _retries(each) and topics.find(retry_topic(each.name)) is None]
    if lacking:
        return _create_retry_topics(call, lacking)
    call.answer()
    return None


def _retries(group: ConsumerGroup) -> bool:
    """Whether the broker has its messages that are to be tried again."""
    return group.consume_type == PUSH and group.message_model == CLUSTERING


async def _create_retry_topics(call: Call, groups: Sequence[ConsumerGroup]) -> None:
    """Members ask for its route from now on, and would find out late if the first retry created it."""
    for group in groups:
        await call.connection.server.topics.obtain(retry_topic(group.name), 1)
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
