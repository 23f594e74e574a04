"""JSON bodies that tools for operators ask for: the cluster, statistics, connections, groups.

Maps by queue have objects as keys, as fastjson writes them; see `bodies`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from posthouse.protocols.rocketmq.codec.bodies import MessageQueue, encode_by_queue, encode_json
from posthouse.protocols.rocketmq.codec.heartbeats import ConsumerGroup, Subscription, subscription_members
from posthouse.protocols.rocketmq.codec.lenient_json import Json, decode_json
from posthouse.protocols.rocketmq.codec.members import Members
from posthouse.protocols.rocketmq.codec.routes import MASTER, TopicConfiguration, topic_members

DEFAULT_RETRIES: Final = 16
_NO_VERSION: Final[dict[str, Json]] = {"counter": 0, "stateVersion": 0, "timestamp": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    start: int
    end: int
    last_stored_at: int
    """Milliseconds; 0 if it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """Of a group."""

    end: int
    committed: int
    leased: int = 0
    """Messages that consumers have, and have not acknowledged."""
    last_consumed_at: int
    """When the message before `committed` was stored; 0 if that is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    client: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfiguration:
    """The members that say how a group consumes; others are hints for brokers with replicas."""

    name: str
    may_consume: bool = True
    retry_queues: int = 1
    retries: int = DEFAULT_RETRIES
    is_ordered: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Names begin with + where a tool sets them."""
    has_retry_policy: bool = False


def encode_cluster(cluster: str, broker: str, address: str) -> bytes:
    """Of one broker."""
    data: Json = {"brokerAddrs": {str(MASTER): address}, "brokerName": broker, "cluster": cluster}
    return encode_json({"brokerAddrTable": {broker: data}, "clusterAddrTable": {cluster: [broker]}})


def encode_table(values: Mapping[str, str]) -> bytes:
    return encode_json({"table": dict(values)})


def encode_topic_statistics(queues: Mapping[MessageQueue, QueueStatistics]) -> bytes:
    entries: dict[MessageQueue, Json] = {
        queue: {
            "lastUpdateTimestamp": each.last_stored_at,
            "maxOffset": each.end,
            "minOffset": each.start,
        }
        for queue, each in queues.items()
    }
    return encode_by_queue(entries)


def encode_progress(queues: Mapping[MessageQueue, QueueProgress]) -> bytes:
    entries: dict[MessageQueue, Json] = {
        queue: {
            "brokerOffset": each.end,
            "consumerOffset": each.committed,
            "lastTimestamp": each.last_consumed_at,
            "pullOffset": each.committed + each.leased,
        }
        for queue, each in queues.items()
    }
    return encode_by_queue(entries)


def encode_consumer_connections(
    clients: Iterable[ClientInfo], group: ConsumerGroup, subscriptions: Iterable[Subscription]
) -> bytes:
    """`group` stands for all of its members."""
    return encode_json(
        {
            "connectionSet": [_client(each) for each in clients],
            "consumeFromWhere": group.start,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {each.topic: subscription_members(each) for each in subscriptions},
        }
    )


def encode_producer_connections(clients: Iterable[ClientInfo]) -> bytes:
    return encode_json({"connectionSet": [_client(each) for each in clients]})


def _client(client: ClientInfo) -> Json:
    return {
        "clientAddr": client.address,
        "clientId": client.client,
        "language": client.language,
        "version": client.version,
    }


def encode_topic_configurations(topics: Iterable[TopicConfiguration]) -> bytes:
    table: dict[str, Json] = {each.name: topic_members(each) for each in topics}
    return encode_json({"dataVersion": _NO_VERSION, "topicConfigTable": table})


def encode_group_list(groups: Iterable[str]) -> bytes:
    return encode_json({"groupList": list(groups)})


def encode_subscription(group: str, subscription: Subscription) -> bytes:
    return encode_json(
        {
            "group": group,
            "subscriptionData": subscription_members(subscription),
            "topic": subscription.topic,
        }
    )


def encode_group_configuration(group: GroupConfiguration) -> bytes:
    return encode_json(_group(group))


def encode_group_configurations(groups: Iterable[GroupConfiguration]) -> bytes:
    table: dict[str, Json] = {each.name: _group(each) for each in groups}
    return encode_json({"dataVersion": _NO_VERSION, "forbiddenTable": {}, "subscriptionGroupTable": table})


def _group(group: GroupConfiguration) -> dict[str, Json]:
    return {
        "attributes": dict(group.attributes),
        "brokerId": MASTER,
        "consumeBroadcastEnable": True,
        "consumeEnable": group.may_consume,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": group.is_ordered,
        "groupName": group.name,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": group.retries,
        "retryQueueNums": group.retry_queues,
        "whichBrokerWhenConsumeSlowly": MASTER,
    }


def decode_group_configuration(body: bytes | memoryview) -> GroupConfiguration:
    """Raises BadBody. Members that are missing have upstream's defaults."""
    members = Members(decode_json(body), "the configuration of a group")
    policy = dict(members.items("groupRetryPolicy"))
    return GroupConfiguration(
        name=members.text("groupName"),
        may_consume=members.truth("consumeEnable", default=True),
        retry_queues=members.number("retryQueueNums", 1),
        retries=members.number("retryMaxTimes", DEFAULT_RETRIES),
        is_ordered=members.truth("consumeMessageOrderly", default=False),
        attributes={name: str(value) for name, value in members.items("attributes")},
        has_retry_policy=any(
            policy.get(name) is not None for name in ("customizedRetryPolicy", "exponentialRetryPolicy")
        ),
    )
