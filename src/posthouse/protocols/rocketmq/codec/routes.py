"""JSON bodies about topics: routes (105), lists of topics (206) and configurations."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from posthouse.protocols.rocketmq.codec.bodies import encode_json
from posthouse.protocols.rocketmq.codec.codes import Permission
from posthouse.protocols.rocketmq.codec.errors import BadBody
from posthouse.protocols.rocketmq.codec.lenient_json import Json, decode_json
from posthouse.protocols.rocketmq.codec.members import Members, number

MASTER: Final = 0
"""The number of the broker that takes writes."""
_BOTH: Final = int(Permission.READ | Permission.WRITE)
_DEFAULT_QUEUES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRoute:
    cluster: str
    name: str
    addresses: dict[int, str]
    """host:port by the broker's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRoute:
    """A topic's queues on one broker."""

    broker: str
    read_queues: int
    write_queues: int
    permission: int = _BOTH
    system_flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    brokers: tuple[BrokerRoute, ...]
    queues: tuple[QueueRoute, ...]
    order_configuration: str | None = None
    """broker:queues;… of a topic that is ordered over all brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfiguration:
    name: str
    read_queues: int
    write_queues: int
    permission: int = _BOTH
    system_flag: int = 0
    filter_type: str = "SINGLE_TAG"
    is_ordered: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


def encode_route(route: Route) -> bytes:
    """Numbers of brokers are quoted, which upstream does only for clients that ask: all clients read it."""
    members: dict[str, Json] = {
        "brokerDatas": [
            {
                "brokerAddrs": {str(number): address for number, address in each.addresses.items()},
                "brokerName": each.name,
                "cluster": each.cluster,
            }
            for each in route.brokers
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": each.broker,
                "perm": each.permission,
                "readQueueNums": each.read_queues,
                "topicSysFlag": each.system_flag,
                "writeQueueNums": each.write_queues,
            }
            for each in route.queues
        ],
    }
    if route.order_configuration is not None:
        members["orderTopicConf"] = route.order_configuration
    return encode_json(members)


def decode_route(body: bytes | memoryview) -> Route:
    """Raises BadBody."""
    members = Members(decode_json(body), "a route")
    return Route(
        brokers=tuple(_read_broker(each) for each in members.objects("brokerDatas")),
        queues=tuple(_read_queues(each) for each in members.objects("queueDatas")),
        order_configuration=members.text("orderTopicConf", "") or None,
    )


def _read_broker(members: Members) -> BrokerRoute:
    addresses: dict[int, str] = {}
    for key, value in members.items("brokerAddrs"):
        if not isinstance(value, str):
            raise BadBody("an address of a broker is not text")
        addresses[number(key, "the number of a broker")] = value
    return BrokerRoute(
        cluster=members.text("cluster", ""), name=members.text("brokerName"), addresses=addresses
    )


def _read_queues(members: Members) -> QueueRoute:
    return QueueRoute(
        broker=members.text("brokerName"),
        read_queues=members.number("readQueueNums"),
        write_queues=members.number("writeQueueNums"),
        permission=members.number("perm", _BOTH),
        system_flag=members.number("topicSysFlag", 0),
    )


def encode_topic_list(topics: Iterable[str]) -> bytes:
    return encode_json({"topicList": list(topics)})


def decode_topic_list(body: bytes | memoryview) -> tuple[str, ...]:
    return Members(decode_json(body), "a list of topics").texts("topicList")


def encode_topic_configuration(topic: TopicConfiguration) -> bytes:
    return encode_json(topic_members(topic))


def topic_members(topic: TopicConfiguration) -> dict[str, Json]:
    return {
        "attributes": {**topic.attributes},
        "order": topic.is_ordered,
        "perm": topic.permission,
        "readQueueNums": topic.read_queues,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": topic.system_flag,
        "writeQueueNums": topic.write_queues,
    }


def decode_topic_configuration(body: bytes | memoryview) -> TopicConfiguration:
    """Raises BadBody. Members that are missing have upstream's defaults."""
    members = Members(decode_json(body), "the configuration of a topic")
    attributes: dict[str, str] = {}
    for key, value in members.items("attributes"):
        if not isinstance(value, str):
            raise BadBody(f"attribute {key} of a topic is not text")
        attributes[key] = value
    return TopicConfiguration(
        name=members.text("topicName"),
        read_queues=members.number("readQueueNums", _DEFAULT_QUEUES),
        write_queues=members.number("writeQueueNums", _DEFAULT_QUEUES),
        permission=members.number("perm", _BOTH),
        system_flag=members.number("topicSysFlag", 0),
        filter_type=members.choice("topicFilterType", ("SINGLE_TAG", "MULTI_TAG"), "SINGLE_TAG"),
        is_ordered=members.truth("order"),
        attributes=attributes,
    )
