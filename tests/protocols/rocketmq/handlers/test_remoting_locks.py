"""Locks of queues, for consumers in order."""

from posthouse.protocols.rocketmq.codec.bodies import (
    MessageQueue,
    QueueLocks,
    decode_locked_queues,
    encode_queue_locks,
)
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient, client_of

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


def body(client: str, *queues: int, group: str = "g") -> bytes:
    wanted = tuple(MessageQueue(topic="t", broker="posthouse", queue=queue) for queue in queues)
    return encode_queue_locks(QueueLocks(group=group, client=client, queues=wanted))


async def lock(client: RemotingClient, name: str, *queues: int, group: str = "g") -> list[int]:
    answer = await client.request(LOCK, None, body(name, *queues, group=group))
    assert answer.code == 0, answer.remark
    return [each.queue for each in decode_locked_queues(answer.body)]


async def test_a_queue_has_one_holder(broker: AsyncBroker, client: RemotingClient) -> None:
    assert await lock(client, "one", 0, 1) == [0, 1]
    assert await lock(client, "one", 0, 1) == [0, 1]
    async with client_of(broker) as other:
        assert await lock(other, "two", 1, 2) == [2]
        assert await lock(other, "two", 0, 1, group="h") == [0, 1]
        assert (await other.request(UNLOCK, None, body("two", 0, 1))).code == 0  # of another client
        assert await lock(other, "two", 0, 1) == []
        assert (await client.request(UNLOCK, None, body("one", 0))).code == 0
        assert await lock(other, "two", 0, 1) == [0]
    client.oneway(UNLOCK, None, body("one", 1))
    assert await lock(client, "three", 1) == [1]


async def test_bodies_that_are_no_locks(client: RemotingClient) -> None:
    for code in (LOCK, UNLOCK):
        for wrong in (b"", b"{}", b"[]"):
            answer = await client.request(code, None, wrong)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        for group in ("", "a b"):
            answer = await client.request(code, None, body("one", 0, group=group))
            assert answer.code == ResponseCode.INVALID_PARAMETER
