"""Routes: what clients of RocketMQ ask a name server. The only broker is this one."""

from posthouse.model.errors import InvalidTopicName
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.codec.routes import MASTER, BrokerRoute, QueueRoute, Route, encode_route
from posthouse.protocols.rocketmq.names import BROKER, CLUSTER, DEFAULT_TOPIC, REPLY_TOPIC, RETRY
from posthouse.protocols.rocketmq.remoting.call import (
    Call,
    check_may_consume,
    check_may_describe,
    described_topic,
)
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.topics import DEFAULT_QUEUES, RETRY_QUEUES


def route(call: Call) -> None:
    name = call.text("topic")
    server = call.connection.server
    if name == DEFAULT_TOPIC and server.settings.auto_create_topics:
        queues = DEFAULT_QUEUES
    elif name.startswith(RETRY) and server.topics.find(name) is None:
        # A client asks before its first heartbeat, which creates this topic, and then not for 30 s: the first
        # retries of a new group would be late. Upstream has them late.
        check_may_consume(call, name.removeprefix(RETRY))
        queues = RETRY_QUEUES
    elif name == REPLY_TOPIC:
        check_may_describe(call, name)
        queues = 1
    else:
        queues = _described(call, name).partitions
    address = str(call.connection.address)
    found = Route(
        brokers=(BrokerRoute(cluster=CLUSTER, name=BROKER, addresses={MASTER: address}),),
        queues=(QueueRoute(broker=BROKER, read_queues=queues, write_queues=queues),),
    )
    call.answer(body=encode_route(found))


def _described(call: Call, name: str) -> Topic:
    try:
        return described_topic(call, name)
    except InvalidTopicName:  # clients go on with the route of the default topic only after this code
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {name!r}") from None
