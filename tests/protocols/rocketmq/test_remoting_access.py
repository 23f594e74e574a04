"""What a guard is asked, and what its refusals lead to. It knows topics by their names in the log."""

import pytest

from posthouse.broker.access.guard import OpenGuard
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue, QueueLocks, encode_queue_locks
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.heartbeats import Heartbeat, encode_heartbeat
from posthouse.protocols.rocketmq.remoting.connection import RemotingConnection
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient, group


class RefusingGuard(OpenGuard):
    def __init__(self, broker: AsyncBroker, *refused: tuple[Operation, Kind, str]) -> None:
        super().__init__(broker.app.broker.access.audit, "?", "rocketmq")
        self.refused = refused
        self.asked: list[tuple[Operation, Kind, str]] = []
        self.unseen: set[tuple[Kind, str]] = set()

    def sees(self, kind: Kind, name: str) -> bool:
        return (kind, name) not in self.unseen

    def allows(self, operation: Operation, kind: Kind, name: str) -> bool:
        self.asked.append((operation, kind, name))
        return (operation, kind, name) not in self.refused


def guard(broker: AsyncBroker, *refused: tuple[Operation, Kind, str]) -> RefusingGuard:
    """In the place of that of the only connection."""
    [connection] = broker.app.connections
    assert isinstance(connection, RemotingConnection)
    connection.guard = made = RefusingGuard(broker, *refused)
    return made


HEARTBEAT = encode_heartbeat(Heartbeat(client="c", consumer_groups=(group("g", t="*"),)))
LOCKS = encode_queue_locks(
    QueueLocks(group="g", client="c", queues=(MessageQueue(topic="t", broker="b", queue=0),))
)
SEND: dict[str, str | int] = {"b": "t", "e": 0, "i": ""}
PLACE: dict[str, str | int] = {
    "topic": "t",
    "queueId": 0,
    "consumerGroup": "g",
    "commitOffset": 0,
    "timestamp": 0,
    "queueOffset": 0,
    "sysFlag": 4,
    "group": "g",
    "offset": 0,
    "originTopic": "t",
}
READ_GROUP = (Operation.READ, Kind.GROUP, "g")
READ_TOPIC = (Operation.READ, Kind.TOPIC, "t")
DESCRIBE = (Operation.DESCRIBE, Kind.TOPIC, "t")
DESCRIBE_GROUP = (Operation.DESCRIBE, Kind.GROUP, "g")
DESCRIBE_BROKER = (Operation.DESCRIBE, Kind.CLUSTER, CLUSTER)
SHOW_SETTINGS = (Operation.DESCRIBE_CONFIGS, Kind.CLUSTER, CLUSTER)
REPLY_TOPIC = "posthouse_REPLY_TOPIC"
TOPIC: dict[str, str | int] = {"readQueueNums": 9, "writeQueueNums": 9}
GROUP: dict[str, str | int] = {"groupName": "g", "group": "g", "clientId": "c", "producerGroup": "p"}


MAY_FAIL = {
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
}
"""There is no group, no consumer, or the topic still exists."""


@pytest.mark.parametrize(
    ("code", "fields", "body", "needed"),
    [
        (RequestCode.SEND_MESSAGE_V2, SEND, b"", (Operation.WRITE, Kind.TOPIC, "t")),
        (RequestCode.SEND_MESSAGE_V2, SEND | {"b": "n"}, b"", (Operation.CREATE, Kind.TOPIC, "n")),
        (RequestCode.SEND_MESSAGE_V2, SEND | {"b": "n"}, b"", (Operation.WRITE, Kind.TOPIC, "n")),
        (RequestCode.SEND_MESSAGE_V2, SEND | {"b": "%n"}, b"", (Operation.WRITE, Kind.TOPIC, ".n")),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, PLACE, b"", DESCRIBE),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%g"}, b"", READ_GROUP),
        (RequestCode.PULL_MESSAGE, PLACE, b"", READ_TOPIC),
        (RequestCode.PULL_MESSAGE, PLACE, b"", READ_GROUP),
        (RequestCode.QUERY_CONSUMER_OFFSET, PLACE, b"", READ_GROUP),
        (RequestCode.QUERY_CONSUMER_OFFSET, PLACE, b"", DESCRIBE),
        (RequestCode.UPDATE_CONSUMER_OFFSET, PLACE, b"", READ_GROUP),
        (RequestCode.UPDATE_CONSUMER_OFFSET, PLACE, b"", DESCRIBE),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, PLACE, b"", DESCRIBE),
        (RequestCode.GET_MAX_OFFSET, PLACE, b"", DESCRIBE),
        (RequestCode.GET_MIN_OFFSET, PLACE, b"", DESCRIBE),
        (RequestCode.GET_EARLIEST_MSG_STORE_TIME, PLACE, b"", DESCRIBE),
        (RequestCode.HEART_BEAT, PLACE, HEARTBEAT, READ_GROUP),
        (RequestCode.CONSUMER_SEND_MSG_BACK, PLACE, b"", READ_GROUP),
        # Otherwise a consumer could copy a topic that it may not read.
        (RequestCode.CONSUMER_SEND_MSG_BACK, PLACE, b"", READ_TOPIC),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, PLACE, b"", READ_GROUP),
        (RequestCode.LOCK_BATCH_MQ, PLACE, LOCKS, READ_GROUP),
        (RequestCode.UNLOCK_BATCH_MQ, PLACE, LOCKS, READ_GROUP),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, PLACE, b"", READ_GROUP),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, PLACE, b"", READ_TOPIC),
        (
            RequestCode.SEND_REPLY_MESSAGE_V2,
            SEND | {"b": REPLY_TOPIC},
            b"",
            (Operation.WRITE, Kind.TOPIC, REPLY_TOPIC),
        ),
        (
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": REPLY_TOPIC},
            b"",
            (Operation.DESCRIBE, Kind.TOPIC, REPLY_TOPIC),
        ),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, PLACE | TOPIC, b"", (Operation.ALTER, Kind.TOPIC, "t")),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            TOPIC | {"topic": "n"},
            b"",
            (Operation.CREATE, Kind.TOPIC, "n"),
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, PLACE, b"", (Operation.DELETE, Kind.TOPIC, "t")),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, PLACE, b"", (Operation.DELETE, Kind.TOPIC, "t")),
        (RequestCode.GET_TOPIC_CONFIG, PLACE, b"", DESCRIBE),
        (RequestCode.GET_TOPIC_STATS_INFO, PLACE, b"", DESCRIBE),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, PLACE, b"", DESCRIBE),
        (RequestCode.GET_CONSUME_STATS, PLACE, b"", DESCRIBE_GROUP),
        (RequestCode.GET_CONSUME_STATS, PLACE, b"", DESCRIBE),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g"}', READ_GROUP),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, GROUP, b"", (Operation.DELETE, Kind.GROUP, "g")),
        (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GROUP, b"", DESCRIBE_GROUP),
        (RequestCode.QUERY_TOPICS_BY_CONSUMER, GROUP, b"", DESCRIBE_GROUP),
        (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, PLACE, b"", DESCRIBE_GROUP),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, PLACE, b"", DESCRIBE_GROUP),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, PLACE | GROUP, b"", DESCRIBE_GROUP),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, GROUP, b"", DESCRIBE_BROKER),
        (RequestCode.GET_BROKER_RUNTIME_INFO, {}, b"", DESCRIBE_BROKER),
        (RequestCode.GET_BROKER_CONFIG, {}, b"", SHOW_SETTINGS),
    ],
)
async def test_permissions(
    broker: AsyncBroker,
    client: RemotingClient,
    code: RequestCode,
    fields: dict[str, str | int],
    body: bytes,
    needed: tuple[Operation, Kind, str],
) -> None:
    assert (await client.send("t", b"x", d=1)).code == 0
    guard(broker, needed)
    answer = await client.request(code, fields, body)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "no permission" in (answer.remark or "")
    assert broker.app.broker.groups.offsets.groups() == []
    assert ".RETRY.g" not in {each.name for each in broker.app.broker.topics}
    found = guard(broker)
    answer = await client.request(code, fields, body)
    assert "no permission" not in (answer.remark or "")
    assert answer.code == 0 or code in MAY_FAIL, answer.remark
    assert needed in found.asked or needed[0] is Operation.CREATE or code == 310


async def test_only_the_creator_of_a_topic_is_asked(broker: AsyncBroker, client: RemotingClient) -> None:
    """An audit log would have a line for each."""
    await client.request(105, {"topic": "TBW102"})
    found = guard(broker)
    for number in range(20):
        client.oneway(RequestCode.SEND_MESSAGE_V2, SEND, b"%d" % number)
    assert (await client.send("t", b"x")).fields["queueOffset"] == "20"
    assert found.asked.count((Operation.CREATE, Kind.TOPIC, "t")) == 1


async def test_lists_have_what_may_be_seen(broker: AsyncBroker, client: RemotingClient) -> None:
    for name in ("t", "u"):
        assert (await client.send(name, b"x")).code == 0
        fields = {"consumerGroup": f"g{name}", "topic": name, "queueId": 0, "commitOffset": 1}
        assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
        fields = {"consumerGroup": "both", "topic": name, "queueId": 0, "commitOffset": 1}
        assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
    found = guard(broker)
    found.unseen = {(Kind.TOPIC, "u"), (Kind.GROUP, "gt")}
    for code, sent in (
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "both"}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "both"}),
    ):
        body = bytes((await client.request(code, sent)).body)
        assert b'"t"' in body
        assert b'"u"' not in body
    for code, sent in (
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "t"}),
    ):
        body = bytes((await client.request(code, sent)).body)
        assert b'"both"' in body
        assert b'"gt"' not in body
