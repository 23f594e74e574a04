"""Half messages of RocketMQ: prepared, decided, and checked where nobody has decided."""

import logging
from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.half_messages.checks import FIRST_CHECK_SECONDS, LONGEST_FIRST_CHECK
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import AccessRefused, AlreadyDecided, PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import PRODUCER_GROUP, UNIQUE_KEY, MessageFlag, ResponseCode
from posthouse.protocols.rocketmq.codec.message_ids import make_message_id
from posthouse.protocols.rocketmq.codec.properties import encode_properties
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage, encode_stored_message
from posthouse.protocols.rocketmq.messages import Message, message_of, record_headers, record_key
from posthouse.protocols.rocketmq.names import client_name
from posthouse.protocols.rocketmq.positions import half_id, pack_half_position
from posthouse.protocols.rocketmq.remoting.call import Call
from posthouse.protocols.rocketmq.remoting.errors import Refused

log = logging.getLogger(__name__)

_FIRST_CHECK: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""A property: how long the producer is left alone."""
_NOT_DECIDED: Final = 0


def prepare(call: Call, topic: Topic, queue: int, message: Message) -> None:
    """A delay is ignored, as upstream."""
    properties = message.properties
    group = properties.get(PRODUCER_GROUP) or call.text("producerGroup")

    def stored(result: int | PosthouseError) -> None:
        if not isinstance(result, int):
            call.fail(result)
            return
        fields = {
            "msgId": make_message_id(call.connection.own_host, pack_half_position(result)),
            "queueId": str(queue),
            "queueOffset": str(result),
        }
        if (id := properties.get(UNIQUE_KEY)) is not None:
            fields["transactionId"] = id
        call.answer(fields=fields)

    call.connection.server.broker.half_messages.prepare(
        topic,
        queue,
        record_key(properties),
        message.body,
        record_headers(message),
        group=group,
        first_check_seconds=_first_check(properties.get(_FIRST_CHECK)),
        stored=stored,
    )


def _first_check(text: str | None) -> int:
    if text is None or not text.isdecimal() or len(text) > len(str(LONGEST_FIRST_CHECK)):
        return FIRST_CHECK_SECONDS
    return min(int(text), LONGEST_FIRST_CHECK)


def end(call: Call) -> Coroutine[Any, Any, None] | None:
    decision = call.number("commitOrRollback")
    id = half_id(call.number("commitLogOffset"))
    group = call.text("producerGroup")
    for topic in call.connection.server.broker.half_messages.topics_of(id):
        if not call.connection.guard.allows(Operation.WRITE, Kind.TOPIC, topic):
            raise AccessRefused(f"no permission to decide half messages for topic {client_name(topic)!r}")
    if decision == _NOT_DECIDED:
        call.answer()  # it is asked again
        return None
    if decision not in (MessageFlag.COMMIT, MessageFlag.ROLLBACK):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{decision} is neither commit (8) nor roll-back (12)")
    return _end(call, id, group, commit=decision == MessageFlag.COMMIT)


async def _end(call: Call, id: int, group: str, *, commit: bool) -> None:
    half_messages = call.connection.server.broker.half_messages
    try:
        # Others may wait for the same decision: it must not end with this connection.
        await undisturbed(half_messages.decide(id, group=group, commit=commit))
    except AlreadyDecided as error:
        log.warning("the RocketMQ producer at %s, group %s: %s", call.connection.peer, group, error)
        raise
    call.answer()


def check_fields(id: int, half: HalfMessage, own_host: bytes) -> tuple[dict[str, str], bytes]:
    """Fields and body of the request that asks a producer."""
    message = message_of(half.record(id))
    position = pack_half_position(id)
    stored = StoredMessage(
        topic=client_name(half.content.exchange),
        queue=half.content.partition or 0,
        queue_offset=id,
        position=position,
        body=message.body,
        properties=encode_properties(message.properties),
        born_at=message.born_at,
        born_host=message.born_host,
        stored_at=half.prepared_ms,
        stored_host=own_host,
        flag=message.flag,
        system_flags=int(MessageFlag.PREPARED),
        prepared_position=position,
    )
    unique = message.properties.get(UNIQUE_KEY, "")
    fields = {
        "topic": stored.topic,
        "tranStateTableOffset": str(id),
        "commitLogOffset": str(position),
        "msgId": unique,
        "transactionId": unique,
        "offsetMsgId": stored.message_id,
    }
    return fields, encode_stored_message(stored)
