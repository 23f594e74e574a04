"""Messages by key, by the id that their producer gave them, and by the broker's own id."""

from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.key_index.key_search import SearchLimits
from posthouse.broker.key_index.names import NameQuery
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import UNIQUE_KEY_QUERY, ResponseCode
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage, encode_stored_messages
from posthouse.protocols.rocketmq.messages import message_of
from posthouse.protocols.rocketmq.names import RETRY
from posthouse.protocols.rocketmq.positions import unpack_position
from posthouse.protocols.rocketmq.reading import read_record
from posthouse.protocols.rocketmq.remoting.answered_messages import answered_message
from posthouse.protocols.rocketmq.remoting.call import Call, readable_topic
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.records.raw import RawRecord
from posthouse.records.record_names import Name, NameKind

MOST_MESSAGES: Final = 64
"""In one answer, as upstream."""
_SECONDS: Final = 10.0
"""Clients wait 18 s for the answer."""
_INDEX_TYPE: Final = "indexType"
_OF_UNIQUE_KEYS: Final = "U"


def query(call: Call) -> Coroutine[Any, Any, None]:
    name = call.text("topic")
    topic = readable_topic(call, name)
    is_id = call.truth(UNIQUE_KEY_QUERY) or call.request.fields.get(_INDEX_TYPE) == _OF_UNIQUE_KEYS
    wanted = NameQuery(
        Name(NameKind.MESSAGE_ID if is_id else NameKind.KEY, call.text("key").encode()),
        call.number("beginTimestamp", 0),
        call.number("endTimestamp", (1 << 63) - 1),
    )
    most = call.number("maxNum", MOST_MESSAGES)
    return _query(call, name, topic, wanted, max(1, min(most, MOST_MESSAGES)))


async def _query(call: Call, name: str, topic: Topic, wanted: NameQuery, most: int) -> None:
    async with call.connection.searching:
        await call.connection.writable()
        await _search(call, name, topic, wanted, most)


async def _search(call: Call, name: str, topic: Topic, wanted: NameQuery, most: int) -> None:
    broker = call.connection.server.broker
    found = await broker.key_search.newest(topic, wanted, SearchLimits(records=most, seconds=_SECONDS))
    stored = [_stored(call, name, partition, record) for partition, record in found.records]
    if not stored:
        if found.is_complete:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, "no message has this key in that time")
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "the search was given up before the whole topic was read; set index.keys=true for the topic, or "
            "ask again when its index is up to date",
        )
    traffic = broker.traffic[topic.name]
    traffic.records_out += len(stored)
    traffic.bytes_out += found.record_bytes
    call.answer(
        # What clients show of the index; no decision depends on it.
        fields={
            "indexLastUpdateTimestamp": str(max(each.stored_at for each in stored)),
            "indexLastUpdatePhyoffset": str(max(each.position for each in stored)),
        },
        body=encode_stored_messages(stored),
    )


def view(call: Call) -> Coroutine[Any, Any, None]:
    """By the position in the message's id. It does not say which topic it is in: clients since 5.0 do."""
    name = call.request.fields.get("topic")
    if not name:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "a message is found by its offset id only together with its topic, which clients send since 5.0",
        )
    topic = readable_topic(call, name)
    return _view(call, name, topic, call.number("offset"))


async def _view(call: Call, name: str, topic: Topic, position: int) -> None:
    broker = call.connection.server.broker
    place = unpack_position(position)
    record = None
    if place.is_retry == name.startswith(RETRY) and place.partition < topic.partitions:
        async with call.connection.reading:
            await call.connection.writable()
            record = await read_record(broker, topic, place.partition, place.offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message at the offset {position}")
    traffic = broker.traffic[topic.name]
    traffic.records_out += 1
    traffic.bytes_out += len(record.value)
    call.answer(body=encode_stored_messages([_stored(call, name, place.partition, record)]))


def _stored(call: Call, name: str, partition: int, record: RawRecord) -> StoredMessage:
    message = message_of(record)
    return answered_message(call.connection, name, partition, record.offset, record.timestamp, message)
