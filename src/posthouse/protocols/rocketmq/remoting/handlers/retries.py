"""Messages that were consumed in vain: they come again after a while, and in the end are dead letters."""

from collections.abc import Coroutine
from typing import Any, Final

from posthouse.model.errors import PosthouseError
from posthouse.protocols.rocketmq.codec.codes import ORIGIN_MESSAGE_ID, RETRY_TOPIC, ResponseCode
from posthouse.protocols.rocketmq.delays import MOST_RETRIES, level_ms, retry_level
from posthouse.protocols.rocketmq.messages import Message, record_headers, record_key
from posthouse.protocols.rocketmq.names import dead_letter_topic, retry_topic, topic_name
from posthouse.protocols.rocketmq.positions import Position, unpack_position
from posthouse.protocols.rocketmq.reading import read_message
from posthouse.protocols.rocketmq.remoting.call import Call, check_may_consume, readable_topic
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.topics import RETRY_QUEUES

_MOST_TIMES: Final = (1 << 31) - 1
_LONGEST_ID: Final = 64


def send_back(call: Call) -> Coroutine[Any, Any, None]:
    group = call.text("group")
    check_may_consume(call, group)
    return _send_back(call, group, unpack_position(call.number("offset")), call.number("delayLevel", 0))


async def _send_back(call: Call, group: str, position: Position, level: int) -> None:
    message = await _found(call, group, position)
    reconsumed = message.reconsume_times
    most = call.number("maxReconsumeTimes", MOST_RETRIES)
    is_dead = level < 0 or reconsumed >= (most if most >= 0 else MOST_RETRIES)
    server = call.connection.server
    name = dead_letter_topic(group) if is_dead else retry_topic(group)
    topic = await server.topics.obtain(name, RETRY_QUEUES)
    message.reconsume_times = min(reconsumed + 1, _MOST_TIMES)
    if origin := call.request.fields.get("originTopic"):
        topic_name(origin)  # nothing else may get into the properties
        message.properties.setdefault(RETRY_TOPIC, origin)
    id = call.request.fields.get("originMsgId", "")
    if id.isalnum() and len(id) <= _LONGEST_ID:
        message.properties.setdefault(ORIGIN_MESSAGE_ID, id)
    key, headers = record_key(message.properties), record_headers(message)
    broker = server.broker
    now = broker.now_ms()

    def stored(result: int | PosthouseError | None) -> None:
        if isinstance(result, PosthouseError):
            call.fail(result)
        else:
            call.answer()

    if is_dead:
        broker.record_waves.add(topic, 0, key, message.body, headers, now, stored)
    else:
        due = now + level_ms(retry_level(level, reconsumed))
        broker.delayed_records.add(topic, 0, key, message.body, headers, due, stored)


async def _found(call: Call, group: str, position: Position) -> Message:
    """The message is read again: the client sends only where it is."""
    server = call.connection.server
    name = retry_topic(group) if position.is_retry else call.text("originTopic")
    topic = readable_topic(call, name)
    topic.existing_partition(position.partition)
    message = await read_message(server.broker, topic, position.partition, position.offset)
    if message is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"topic {name!r}, queue {position.partition}: there is no message at offset {position.offset}",
        )
    return message
