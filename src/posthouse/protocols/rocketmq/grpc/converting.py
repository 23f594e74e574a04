"""Messages of the gRPC protocol as messages of the remoting protocol, which are what records hold: clients
of both read each other's.

    system properties   properties with upstream's names: TAGS, KEYS, UNIQ_KEY,
                        __SHARDINGKEY, _SYS_MSG_PRIORITY_
    user properties     all others
    body                as the application gave it: compressed ones are decompressed
"""

from collections.abc import Mapping
from hashlib import sha1
from typing import Final

from posthouse.broker.subscriptions.dead_letters import HEADERS as DEAD_LETTER_HEADERS
from posthouse.model.errors import BadRequest, InvalidTopicName
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import (
    KEYS,
    MAX_OFFSET,
    MAX_RECONSUME_TIMES,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    PRIORITY,
    PRODUCER_GROUP,
    REAL_TOPIC,
    RETRY_TOPIC,
    SHARDING_KEY,
    TAGS,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT,
)
from posthouse.protocols.rocketmq.codec.errors import BadHost
from posthouse.protocols.rocketmq.codec.hosts import unpack_host
from posthouse.protocols.rocketmq.codec.message_ids import make_message_id
from posthouse.protocols.rocketmq.compressed_bodies import gunzip
from posthouse.protocols.rocketmq.delays import PROPERTIES as DELAYS
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import (
    DeadLetterQueue,
    Digest,
    Resource,
    SystemProperties,
)
from posthouse.protocols.rocketmq.grpc.messages.definition import Message as GrpcMessage
from posthouse.protocols.rocketmq.grpc.messages.enums import DigestType, Encoding, MessageType
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from posthouse.protocols.rocketmq.grpc.statuses import Refused
from posthouse.protocols.rocketmq.messages import UNKNOWN_HOST, Message
from posthouse.protocols.rocketmq.names import DEAD_LETTERS, client_name
from posthouse.protocols.rocketmq.positions import pack_position
from posthouse.protocols.rocketmq.priorities import stored_priority

TRACE_CONTEXT: Final = "__TRACE_CONTEXT"
MOST_USER_PROPERTIES: Final = 128
MOST_PROPERTY_BYTES: Final = 16 * 1024
LONGEST_MESSAGE_GROUP: Final = 63
_LONGEST_ID: Final = 256
_, _DEAD_TOPIC, _DEAD_PARTITION, _DEAD_OFFSET = (each.decode() for each in DEAD_LETTER_HEADERS)
_NAMESPACE: Final = "%"
_SYSTEM: Final = frozenset(
    {
        KEYS,
        TAGS,
        UNIQUE_KEY,
        WAIT,
        *DELAYS,
        TRANSACTION_PREPARED,
        PRODUCER_GROUP,
        SHARDING_KEY,
        PRIORITY,
        RETRY_TOPIC,
        REAL_TOPIC,
        ORIGIN_MESSAGE_ID,
        MAX_RECONSUME_TIMES,
        MIN_OFFSET,
        MAX_OFFSET,
        TRACE_CONTEXT,
    }
)
"""Properties that applications can neither set nor see."""


def name_of(resource: Resource | None) -> str:
    """The name as clients of the remoting protocol have it, with its namespace. Raises InvalidTopicName."""
    if resource is None or not resource.name:
        raise InvalidTopicName("a name is missing")
    if resource.resource_namespace:
        return f"{resource.resource_namespace}{_NAMESPACE}{resource.name}"
    return resource.name


def resource_of(name: str, like: Resource | None) -> Resource:
    """The name again, with a namespace if the client uses that one."""
    namespace = "" if like is None else like.resource_namespace
    if namespace and name.startswith(namespace + _NAMESPACE):
        return Resource(resource_namespace=namespace, name=name[len(namespace) + 1 :])
    return Resource(name=name)


# From clients


def sent_message(sent: GrpcMessage, topic: Topic, now_ms: int, born_host: bytes) -> Message:
    """Raises Refused, RecordTooLarge and CorruptBatch."""
    system = sent.system_properties
    if system is None or not system.message_id or len(system.message_id) > _LONGEST_ID:
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "the message has no id, or one that is too long")
    properties = dict(_user_properties(sent.user_properties))
    properties[UNIQUE_KEY] = _visible(system.message_id, Code.ILLEGAL_MESSAGE_ID, "message id")
    if system.tag is not None:
        tag = _visible(system.tag, Code.ILLEGAL_MESSAGE_TAG, "tag")
        if not tag.strip() or "|" in tag:
            raise Refused(Code.ILLEGAL_MESSAGE_TAG, f"the tag {tag[:50]!r} is blank, or has a '|'")
        properties[TAGS] = tag
    if system.keys:
        for key in system.keys:
            if not _visible(key, Code.ILLEGAL_MESSAGE_KEY, "key").strip():
                raise Refused(Code.ILLEGAL_MESSAGE_KEY, "a key of the message is blank")
        properties[KEYS] = " ".join(system.keys)
    if system.message_group is not None:
        group = _visible(system.message_group, Code.ILLEGAL_MESSAGE_GROUP, "message group")
        if not group.strip() or len(group.encode()) > LONGEST_MESSAGE_GROUP:
            raise Refused(
                Code.ILLEGAL_MESSAGE_GROUP, f"a message group has 1 to {LONGEST_MESSAGE_GROUP} bytes"
            )
        properties[SHARDING_KEY] = group
    if system.priority is not None:
        if system.priority < 0:
            raise Refused(Code.BAD_REQUEST, f"a priority is 0 or more, and not {system.priority}")
        properties[PRIORITY] = str(system.priority)
    if system.trace_context:
        properties[TRACE_CONTEXT] = _visible(
            system.trace_context, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "trace context"
        )
    born = system.born_timestamp
    return Message(
        body=_plain(sent.body, system.body_encoding, topic.config.max_message_bytes),
        properties=properties,
        born_at=now_ms if born is None or not 0 <= born.ms < 1 << 62 else born.ms,
        born_host=born_host,
    )


def _user_properties(given: Mapping[str, str]) -> Mapping[str, str]:
    if len(given) > MOST_USER_PROPERTIES:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"a message has at most {MOST_USER_PROPERTIES} properties"
        )
    size = 0
    for name, value in given.items():
        if not name or name in _SYSTEM:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"a property cannot be called {name[:50]!r}")
        _visible(name, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "name of a property")
        _visible(value, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name[:50]!r}")
        size += len(name.encode()) + len(value.encode())
    if size > MOST_PROPERTY_BYTES:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"properties may have {MOST_PROPERTY_BYTES} bytes together"
        )
    return given


def _visible(text: str, code: Code, what: str) -> str:
    if any(each < " " or "\x7f" <= each < "\xa0" for each in text):
        raise Refused(code, f"the {what} has control characters")
    return text


def _plain(body: bytes, encoding: int, limit: int) -> bytes:
    if encoding == Encoding.GZIP:
        return gunzip(body, limit)
    return body


# To clients


def received_message(
    message: Message,
    resource: Resource,
    partition: int,
    offset: int,
    own_host: bytes,
    store_host: str,
    *,
    stored_at: int,
    receipt: str | None,
    attempt: int,
    invisible_ms: int | None,
) -> GrpcMessage:
    properties = message.properties
    keys = properties.get(KEYS)
    priority = stored_priority(properties)
    return GrpcMessage(
        topic=resource,
        user_properties=user_properties(properties),
        system_properties=SystemProperties(
            tag=properties.get(TAGS),
            keys=() if keys is None else tuple(keys.split()),
            message_id=properties.get(UNIQUE_KEY) or _made_id(own_host, partition, offset),
            body_digest=digest_of(message.body),
            body_encoding=Encoding.IDENTITY,
            message_type=_type_of(message, priority),
            born_timestamp=Timestamp.from_ms(message.born_at),
            born_host=_host(message.born_host),
            store_timestamp=Timestamp.from_ms(stored_at),
            store_host=store_host,
            receipt_handle=receipt,
            queue_id=partition,
            queue_offset=offset,
            invisible_duration=None if invisible_ms is None else Duration.from_ms(invisible_ms),
            delivery_attempt=attempt,
            message_group=properties.get(SHARDING_KEY),
            delivery_timestamp=None if message.due_ms is None else Timestamp.from_ms(message.due_ms),
            trace_context=properties.get(TRACE_CONTEXT),
            priority=priority,
            dead_letter_queue=_origin_of(message, name_of(resource), own_host),
        ),
        body=message.body,
    )


def _type_of(message: Message, priority: int | None) -> MessageType:
    """As upstream, whose properties say the same."""
    if message.properties.get(TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if message.due_ms is not None:
        return MessageType.DELAY
    if SHARDING_KEY in message.properties:
        return MessageType.FIFO
    return MessageType.NORMAL if priority is None else MessageType.PRIORITY


def _origin_of(message: Message, topic: str, own_host: bytes) -> DeadLetterQueue | None:
    """Of a dead letter: the topic that it was sent to, and its id there."""
    properties = message.properties
    id = properties.get(UNIQUE_KEY)
    if (origin := properties.get(_DEAD_TOPIC)) is not None:  # of a group of this protocol, or a share group
        return DeadLetterQueue(
            topic=client_name(origin), message_id=id or _id_before_death(properties, own_host)
        )
    if (origin := properties.get(RETRY_TOPIC)) is not None and client_name(topic).startswith(DEAD_LETTERS):
        return DeadLetterQueue(topic=origin, message_id=id or properties.get(ORIGIN_MESSAGE_ID, ""))
    return None


def _id_before_death(properties: Mapping[str, str], own_host: bytes) -> str:
    try:
        return _made_id(own_host, int(properties[_DEAD_PARTITION]), int(properties[_DEAD_OFFSET]))
    except (KeyError, ValueError, BadRequest):  # another producer has made these headers
        return ""


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in _SYSTEM}


def digest_of(body: bytes) -> Digest:
    """Not CRC32, as upstream: clients disagree on how to write it. Those in Java and Go leave out zeros in
    front, that in Python does not, and that in Node.js has a decimal number; each drops the message if the
    text is another one. They all write SHA1 in the same way."""
    digest = sha1(body, usedforsecurity=False).hexdigest()
    return Digest(type=DigestType.SHA1, checksum=digest.upper())


def _made_id(own_host: bytes, partition: int, offset: int) -> str:
    """Of a message that another protocol has sent."""
    return make_message_id(own_host, pack_position(partition, offset, is_retry=False))


def _host(packed: bytes) -> str:
    if packed == UNKNOWN_HOST:
        return ""
    try:
        return str(unpack_host(packed))
    except BadHost:
        return ""
