"""Routes: what clients of RocketMQ ask a name server. The only broker is this one."""

from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.codec.routes import MASTER, BrokerRoute, QueueRoute, Route, encode_route
from posthouse.protocols.rocketmq.names import CLUSTER, DEFAULT_TOPIC, REPLY_TOPIC
from posthouse.protocols.rocketmq.remoting.call import Call, check_may_describe
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.server import BROKER
from posthouse.protocols.rocketmq.topics import DEFAULT_QUEUES


def route(call: Call) -> None:
    name = call.text("topic")
    server = call.connection.server
    if name == DEFAULT_TOPIC and server.settings.auto_create_topics:
        queues = DEFAULT_QUEUES
    elif name == REPLY_TOPIC:
        check_may_describe(call, name)
        queues = 1
    else:
        topic = server.topics.find(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {name!r}")
        check_may_describe(call, name)
        queues = topic.partitions
    address = str(call.connection.address)
    found = Route(
        brokers=(BrokerRoute(cluster=CLUSTER, name=BROKER, addresses={MASTER: address}),),
        queues=(QueueRoute(broker=BROKER, read_queues=queues, write_queues=queues),),
    )
    call.answer(body=encode_route(found))
