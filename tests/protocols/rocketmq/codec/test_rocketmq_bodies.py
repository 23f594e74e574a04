"""Bodies as literal bytes, as Java's fastjson, Go and C++ write them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec import bodies, heartbeats, routes
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue, QueueLocks
from posthouse.protocols.rocketmq.codec.errors import BadBody
from posthouse.protocols.rocketmq.codec.heartbeats import ConsumerGroup, Heartbeat, Subscription
from posthouse.protocols.rocketmq.codec.routes import BrokerRoute, QueueRoute, Route, TopicConfiguration
from tests.protocols.rocketmq.codec.rocketmq_cases import few, text

T0 = MessageQueue(topic="t", broker="b", queue=0)
T1 = MessageQueue(topic="t", broker="b", queue=1)

JAVA_HEARTBEAT = (
    b'{"clientID":"10.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":['
    b'{"classFilterMode":false,"codeSet":[65,66],"expressionType":"TAG","subString":"A || B",'
    b'"subVersion":1700000000000,"tagsSet":["A","B"],"topic":"t"}],"unitMode":false}],'
    b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"p"},{"groupName":"CLIENT_INNER_PRODUCER"}],'
    b'"withoutSub":false}'
)
CPP_HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":5,"consumeType":1,"groupName":"g",'
    b'"messageModel":0,"subscriptionDataSet":[{"codeSet":null,"subString":"*","subVersion":"1700000000000",'
    b'"tagsSet":null,"topic":"t"}]}],"producerDataSet":null}\n'
)
GO_HEARTBEAT = (
    b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",'
    b'"consumeType":"CONSUME_ACTIVELY","messageModel":"BroadCasting","consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[],"unitMode":true}]}'
)
JAVA_ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b","cluster":'
    b'"c","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,'
    b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}'
)
ROUTE = Route(
    brokers=(BrokerRoute(cluster="c", name="b", addresses={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),),
    queues=(QueueRoute(broker="b", read_queues=4, write_queues=8),),
)


def test_a_heartbeat_of_java() -> None:
    subscription = Subscription(
        topic="t", expression="A || B", tags=("A", "B"), version=1_700_000_000_000, expression_type="TAG"
    )
    assert heartbeats.decode_heartbeat(JAVA_HEARTBEAT) == Heartbeat(
        client="10.0.0.1@DEFAULT",
        producer_groups=("p", "CLIENT_INNER_PRODUCER"),
        consumer_groups=(
            ConsumerGroup(
                name="g",
                subscriptions=(subscription,),
                consume_type=heartbeats.PUSH,
                message_model=heartbeats.CLUSTERING,
                start=heartbeats.FROM_FIRST_OFFSET,
            ),
        ),
    )


def test_a_heartbeat_of_cpp() -> None:
    assert heartbeats.decode_heartbeat(CPP_HEARTBEAT) == Heartbeat(
        client="c",
        consumer_groups=(
            ConsumerGroup(
                name="g",
                subscriptions=(Subscription(topic="t", expression="*", version=1_700_000_000_000),),
                consume_type=heartbeats.PUSH,
                message_model=heartbeats.BROADCASTING,
                start=heartbeats.FROM_TIMESTAMP,
            ),
        ),
    )


def test_a_heartbeat_of_go() -> None:
    (group,) = heartbeats.decode_heartbeat(memoryview(GO_HEARTBEAT)).consumer_groups
    assert group == ConsumerGroup(
        name="g",
        subscriptions=(),
        consume_type=heartbeats.PULL,
        message_model=heartbeats.BROADCASTING,
        start=heartbeats.FROM_LAST_OFFSET,
        is_unit=True,
    )


def test_a_heartbeat_without_subscriptions() -> None:
    heartbeat = heartbeats.decode_heartbeat(
        b'{"clientID":"c","heartbeatFingerprint":-5,"withoutSub":true,"more":[{}]}'
    )
    assert heartbeat == Heartbeat(client="c", fingerprint=-5, is_without_subscriptions=True)


def test_unknown_names_survive() -> None:
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"consume_later"}]}'
    (group,) = heartbeats.decode_heartbeat(body).consumer_groups
    assert group.consume_type == "CONSUME_LATER"


def test_a_route() -> None:
    assert routes.decode_route(JAVA_ROUTE) == ROUTE
    assert routes.encode_route(ROUTE) == (
        JAVA_ROUTE.replace(b'{0:"', b'{"0":"')
        .replace(b',1:"', b',"1":"')
        .replace(b',"enableActingMaster":false', b"")
    )


def test_an_ordered_route() -> None:
    route = Route(brokers=(), queues=(), order_configuration="b:4")
    assert routes.decode_route(routes.encode_route(route)) == route


def test_a_topic_configuration() -> None:
    body = (
        b'{"attributes":{"+message.type":"FIFO"},"order":true,"perm":4,"readQueueNums":4,'
        b'"topicFilterType":"MULTI_TAG","topicName":"t","topicSysFlag":1,"writeQueueNums":8}'
    )
    topic = TopicConfiguration(
        name="t",
        read_queues=4,
        write_queues=8,
        permission=4,
        system_flag=1,
        filter_type="MULTI_TAG",
        is_ordered=True,
        attributes={"+message.type": "FIFO"},
    )
    assert routes.decode_topic_configuration(body) == topic
    assert routes.encode_topic_configuration(topic) == body
    assert routes.decode_topic_configuration(b'{"topicName":"t"}') == TopicConfiguration(
        name="t", read_queues=16, write_queues=16
    )


def test_lists() -> None:
    assert bodies.encode_consumer_list(["a", "b"]) == b'{"consumerIdList":["a","b"]}'
    assert bodies.decode_consumer_list(b'{"consumerIdList":["a","b"]}') == ("a", "b")
    assert bodies.decode_consumer_list(b'{"consumerIdList":null}') == ()
    assert routes.encode_topic_list(["t"]) == b'{"topicList":["t"]}'
    assert routes.decode_topic_list(b'{"brokerAddr":null,"topicList":["t"]}') == ("t",)


def test_locks() -> None:
    body = (
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"t"},'
        b'{"brokerName":"b","queueId":1,"topic":"t"}],"onlyThisBroker":true}'
    )
    locks = QueueLocks(group="g", client="c", queues=(T0, T1), is_for_this_broker_only=True)
    assert bodies.decode_queue_locks(body) == locks
    assert bodies.encode_queue_locks(locks) == body
    assert bodies.decode_queue_locks(b'{"clientId":"c","consumerGroup":"g","mqSet":[]}').queues == ()


def test_locked_queues() -> None:
    body = b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"t"}]}'
    assert bodies.encode_locked_queues([T0]) == body
    assert bodies.decode_locked_queues(body) == (T0,)
    assert bodies.encode_locked_queues([]) == b'{"lockOKMQSet":[]}'


def test_offsets_for_java_and_go() -> None:
    body = (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5,'
        b'{"brokerName":"b","queueId":1,"topic":"t"}:-1}}'
    )
    assert bodies.encode_offset_table({T0: 5, T1: -1}) == body
    assert bodies.decode_offset_table(body) == {T0: 5, T1: -1}
    assert bodies.encode_offset_table({}) == b'{"offsetTable":{}}'
    assert bodies.decode_offset_table(b'{"offsetTable":{}}') == {}


def test_offsets_for_cpp() -> None:
    body = b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"t"}]}'
    assert bodies.encode_offset_list({T0: 5}) == body
    assert bodies.decode_offset_table(body) == {T0: 5}
    assert msgspec.json.decode(body)["offsetTable"][0]["offset"] == 5


READERS: list[Callable[[bytes], Any]] = [
    heartbeats.decode_heartbeat,
    routes.decode_route,
    routes.decode_topic_list,
    routes.decode_topic_configuration,
    bodies.decode_consumer_list,
    bodies.decode_queue_locks,
    bodies.decode_locked_queues,
    bodies.decode_offset_table,
]


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (heartbeats.decode_heartbeat, b"{}"),
        (heartbeats.decode_heartbeat, b'{"clientID":5}'),
        (heartbeats.decode_heartbeat, b'{"clientID":"c","producerDataSet":{}}'),
        (heartbeats.decode_heartbeat, b'{"clientID":"c","producerDataSet":["p"]}'),
        (heartbeats.decode_heartbeat, b'{"clientID":"c","consumerDataSet":[{}]}'),
        (
            heartbeats.decode_heartbeat,
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":3}]}',
        ),
        (
            heartbeats.decode_heartbeat,
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":-1}]}',
        ),
        (routes.decode_route, b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"a:1"}}]}'),
        (routes.decode_route, b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"0":1}}]}'),
        (routes.decode_route, b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":[]}]}'),
        (routes.decode_route, b'{"queueDatas":[{"brokerName":"b"}]}'),
        (routes.decode_topic_list, b'{"topicList":[1]}'),
        (routes.decode_topic_configuration, b'{"topicName":"t","attributes":{"a":1}}'),
        (bodies.decode_queue_locks, b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"t"}]}'),
        (bodies.decode_offset_table, b'{"offsetTable":{"t":5}}'),
        (bodies.decode_offset_table, b'{"offsetTable":{5:5}}'),
        (bodies.decode_offset_table, b'{"offsetTable":5}'),
        (bodies.decode_offset_table, b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":1}:{}}}'),
        *((read, b"[]") for read in READERS),
        *((read, b"nonsense") for read in READERS),
    ],
)
def test_refusals(read: Callable[[bytes], Any], body: bytes) -> None:
    with pytest.raises(BadBody):
        read(body)


_numbers = st.integers(-(1 << 63), (1 << 63) - 1)
_queues = st.builds(MessageQueue, topic=text, broker=text, queue=_numbers)
_subscriptions = st.builds(
    Subscription,
    topic=text,
    expression=text,
    tags=st.lists(text, max_size=3).map(tuple),
    version=_numbers,
    expression_type=text,
    is_class_filter=st.booleans(),
)
_upper = st.text("ABC_", max_size=5)
_heartbeats = st.builds(
    Heartbeat,
    client=text,
    producer_groups=st.lists(text, max_size=3).map(tuple),
    consumer_groups=st.lists(
        st.builds(
            ConsumerGroup,
            name=text,
            subscriptions=st.lists(_subscriptions, max_size=2).map(tuple),
            consume_type=_upper,
            message_model=_upper,
            start=_upper,
            is_unit=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    fingerprint=_numbers,
    is_without_subscriptions=st.booleans(),
)


@few(100)
@given(_heartbeats)
def test_heartbeats_survive(heartbeat: Heartbeat) -> None:
    assert heartbeats.decode_heartbeat(heartbeats.encode_heartbeat(heartbeat)) == heartbeat


@few(100)
@given(st.dictionaries(_queues, _numbers, max_size=4))
def test_offsets_survive(offsets: dict[MessageQueue, int]) -> None:
    assert bodies.decode_offset_table(bodies.encode_offset_table(offsets)) == offsets
    assert bodies.decode_offset_table(bodies.encode_offset_list(offsets)) == offsets


@few(300)
@given(
    st.sampled_from(
        [JAVA_HEARTBEAT, CPP_HEARTBEAT, JAVA_ROUTE, bodies.encode_offset_table({T0: 5}), b'{"mqSet":[]}']
    ),
    st.integers(0, 500),
    st.integers(0, 3),
    st.binary(max_size=3) | st.text(st.sampled_from('{}[]:,"0n'), max_size=3).map(str.encode),
)
def test_damage(body: bytes, at: int, cut: int, patch: bytes) -> None:
    at %= len(body)
    for read in READERS:
        try:
            read(body[:at] + patch + body[at + cut :])
        except BadBody:
            continue
