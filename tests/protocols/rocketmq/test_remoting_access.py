"""What a guard is asked, and what its refusals lead to. It knows topics by their names in the log."""

import pytest

from posthouse.broker.access.guard import OpenGuard
from posthouse.broker.access.operations import Kind, Operation
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
        (RequestCode.HEART_BEAT, PLACE, HEARTBEAT, READ_GROUP),
        (RequestCode.CONSUMER_SEND_MSG_BACK, PLACE, b"", READ_GROUP),
        # Otherwise a consumer could copy a topic that it may not read.
        (RequestCode.CONSUMER_SEND_MSG_BACK, PLACE, b"", READ_TOPIC),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, PLACE, b"", READ_GROUP),
        (RequestCode.LOCK_BATCH_MQ, PLACE, LOCKS, READ_GROUP),
        (RequestCode.UNLOCK_BATCH_MQ, PLACE, LOCKS, READ_GROUP),
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
    assert answer.code == 0 or "no client consumes" in (answer.remark or "")
    assert needed in found.asked or needed[0] is Operation.CREATE or code == 310


async def test_only_the_creator_of_a_topic_is_asked(broker: AsyncBroker, client: RemotingClient) -> None:
    """An audit log would have a line for each."""
    await client.request(105, {"topic": "TBW102"})
    found = guard(broker)
    for number in range(20):
        client.oneway(RequestCode.SEND_MESSAGE_V2, SEND, b"%d" % number)
    assert (await client.send("t", b"x")).fields["queueOffset"] == "20"
    assert found.asked.count((Operation.CREATE, Kind.TOPIC, "t")) == 1
