"""The body of a heartbeat (34): which groups a client belongs to, and what they subscribe to."""

from dataclasses import dataclass
from typing import Final

from posthouse.protocols.rocketmq.codec.bodies import encode_json
from posthouse.protocols.rocketmq.codec.lenient_json import Json, decode_json
from posthouse.protocols.rocketmq.codec.members import Members

PULL: Final = "CONSUME_ACTIVELY"
PUSH: Final = "CONSUME_PASSIVELY"
POP: Final = "CONSUME_POP"
BROADCASTING: Final = "BROADCASTING"
CLUSTERING: Final = "CLUSTERING"
FROM_LAST_OFFSET: Final = "CONSUME_FROM_LAST_OFFSET"
FROM_FIRST_OFFSET: Final = "CONSUME_FROM_FIRST_OFFSET"
FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"
TAG_EXPRESSION: Final = "TAG"
SQL_EXPRESSION: Final = "SQL92"

# By the numbers that clients in C++ send.
_CONSUME_TYPES: Final = (PULL, PUSH, POP)
_MESSAGE_MODELS: Final = (BROADCASTING, CLUSTERING)
_STARTS: Final = (
    FROM_LAST_OFFSET,
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    FROM_FIRST_OFFSET,
    FROM_TIMESTAMP,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    topic: str
    expression: str
    tags: tuple[str, ...] = ()
    version: int = 0
    """Milliseconds at the time when the client subscribed."""
    expression_type: str = TAG_EXPRESSION
    is_class_filter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """Unknown names of types, models and starts are kept, in upper case."""

    name: str
    subscriptions: tuple[Subscription, ...]
    consume_type: str = PUSH
    message_model: str = CLUSTERING
    start: str = FROM_LAST_OFFSET
    """Where a group begins that has no offset yet."""
    is_unit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    client: str
    producer_groups: tuple[str, ...] = ()
    consumer_groups: tuple[ConsumerGroup, ...] = ()
    fingerprint: int = 0
    """Of the subscriptions, or 0. Clients of 5.x may leave them out while their fingerprint is the same."""
    is_without_subscriptions: bool = False


def decode_heartbeat(body: bytes | memoryview) -> Heartbeat:
    """Raises BadBody."""
    members = Members(decode_json(body), "a heartbeat")
    return Heartbeat(
        client=members.text("clientID"),
        producer_groups=tuple(each.text("groupName") for each in members.objects("producerDataSet")),
        consumer_groups=tuple(_read_group(each) for each in members.objects("consumerDataSet")),
        fingerprint=members.number("heartbeatFingerprint", 0),
        is_without_subscriptions=members.truth("withoutSub"),
    )


def _read_group(members: Members) -> ConsumerGroup:
    return ConsumerGroup(
        name=members.text("groupName"),
        subscriptions=tuple(_read_subscription(each) for each in members.objects("subscriptionDataSet")),
        consume_type=members.choice("consumeType", _CONSUME_TYPES, PUSH),
        message_model=members.choice("messageModel", _MESSAGE_MODELS, CLUSTERING),
        start=members.choice("consumeFromWhere", _STARTS, FROM_LAST_OFFSET),
        is_unit=members.truth("unitMode"),
    )


def _read_subscription(members: Members) -> Subscription:
    return Subscription(
        topic=members.text("topic"),
        expression=members.text("subString", "*"),
        tags=members.texts("tagsSet"),
        version=members.number("subVersion", 0),
        expression_type=members.text("expressionType", TAG_EXPRESSION),
        is_class_filter=members.truth("classFilterMode"),
    )


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    return encode_json(
        {
            "clientID": heartbeat.client,
            "consumerDataSet": [_group(each) for each in heartbeat.consumer_groups],
            "heartbeatFingerprint": heartbeat.fingerprint,
            "producerDataSet": [{"groupName": each} for each in heartbeat.producer_groups],
            "withoutSub": heartbeat.is_without_subscriptions,
        }
    )


def _group(group: ConsumerGroup) -> dict[str, Json]:
    return {
        "consumeFromWhere": group.start,
        "consumeType": group.consume_type,
        "groupName": group.name,
        "messageModel": group.message_model,
        "subscriptionDataSet": [subscription_members(each) for each in group.subscriptions],
        "unitMode": group.is_unit,
    }


def subscription_members(subscription: Subscription) -> dict[str, Json]:
    return {
        "classFilterMode": subscription.is_class_filter,
        "codeSet": [],
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": list(subscription.tags),
        "topic": subscription.topic,
    }
