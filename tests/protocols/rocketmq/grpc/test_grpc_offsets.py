"""PullMessage, GetOffset, UpdateOffset and QueryOffset: groups that pull are groups of the broker."""

import asyncio
from typing import Any

import pytest

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.grpc.handlers import receive
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import FilterExpression, Message, MessageQueue
from posthouse.protocols.rocketmq.grpc.messages.enums import FilterType, QueryOffsetPolicy
from posthouse.protocols.rocketmq.grpc.messages.service import (
    GetOffsetRequest,
    GetOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryOffsetRequest,
    QueryOffsetResponse,
    UpdateOffsetRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, bodies, system
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of

START = 1_700_000_000_000


def queue(client: MessagingClient, topic: str, id: int = 0) -> MessageQueue:
    return MessageQueue(topic=client.resource(topic), id=id)


def pull_request(
    client: MessagingClient,
    topic: str,
    offset: int,
    *,
    wait: float = 0.0,
    group: str = "group",
    **others: Any,
) -> PullMessageRequest:
    return PullMessageRequest(
        group=client.resource(group),
        message_queue=queue(client, topic, others.pop("queue", 0)),
        offset=offset,
        long_polling_timeout=Duration.from_ms(int(wait * 1000)),
        **others,
    )


async def pull(
    client: MessagingClient, topic: str, offset: int = 0, **others: Any
) -> tuple[list[Message], int | None]:
    """Messages, and where to go on."""
    request = pull_request(client, topic, offset, **others)
    first, *middle, last = await client.responses(request, PullMessageResponse, timeout=DEADLINE)
    assert first.status is not None
    assert first.status.code == (Code.OK if middle else Code.MESSAGE_NOT_FOUND)
    return [each.message for each in middle if each.message is not None], last.next_offset


async def pull_code(client: MessagingClient, topic: str, offset: int = 0, **others: Any) -> int:
    [only] = await client.responses(pull_request(client, topic, offset, **others), PullMessageResponse)
    assert only.status is not None
    return int(only.status.code)


async def filled(broker: AsyncBroker) -> None:
    """Topic t with ten records, a second apart."""
    async with Wire(broker.kafka) as wire:
        id = await wire.create_topic("t", 2)
        for number in range(10):
            await wire.produce(id, batch(b"%d" % number, timestamp=START + 1000 * number))


async def test_pulls(broker: AsyncBroker, client: MessagingClient) -> None:
    await filled(broker)
    messages, following = await pull(client, "t")
    assert (bodies(messages), following) == ([b"%d" % number for number in range(10)], 10)
    assert all(system(each).receipt_handle is None for each in messages)
    messages, following = await pull(client, "t", 3, batch_size=4)
    assert ([each.body for each in messages], following) == ([b"3", b"4", b"5", b"6"], 7)
    assert await pull(client, "t", 10) == ([], 10)
    assert await pull(client, "t", queue=1) == ([], 0)


async def test_pulls_with_a_filter(client: MessagingClient) -> None:
    for tag in ("red", "green", "red"):
        await client.send("orders", tag.encode(), tag=tag, message_group="one queue")
    [message] = await client.receive("orders", expression="green")
    where = system(message).queue_id
    red = FilterExpression(type=FilterType.TAG, expression="red")
    messages, following = await pull(client, "orders", queue=where, filter_expression=red)
    assert ([each.body for each in messages], following) == ([b"red", b"red"], 3)
    none = FilterExpression(type=FilterType.SQL, expression="TAGS = 'blue'")
    assert await pull(client, "orders", queue=where, filter_expression=none) == ([], 3)


async def test_a_pull_waits(broker: AsyncBroker, client: MessagingClient) -> None:
    await filled(broker)
    call = asyncio.create_task(pull(client, "t", 10, wait=20))
    await asyncio.sleep(0)
    async with Wire(broker.kafka) as wire:
        await wire.produce(broker.app.broker.topic("t").id, batch(b"new"))
    messages, following = await call
    assert (bodies(messages), following) == ([b"new"], 11)


async def test_a_pull_ends_before_its_deadline(
    broker: AsyncBroker, client: MessagingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(broker)
    monkeypatch.setattr(receive, "_BEFORE_DEADLINE", DEADLINE - 0.5)
    request = pull_request(client, "t", 10, wait=60)
    status, last = await client.responses(request, PullMessageResponse, timeout=DEADLINE)
    assert status.status is not None and status.status.code == Code.MESSAGE_NOT_FOUND
    assert last.next_offset == 10


async def test_offsets_outside_of_the_queue(broker: AsyncBroker, client: MessagingClient) -> None:
    await filled(broker)
    await broker.app.broker.delete_records(broker.app.broker.topic("t"), 0, 4)
    for offset in (-5, 3, 11, 1 << 62):
        assert await pull_code(client, "t", offset=offset) == Code.ILLEGAL_OFFSET, offset


async def test_offsets_of_groups(broker: AsyncBroker, client: MessagingClient) -> None:
    await filled(broker)
    get = GetOffsetRequest(group=client.resource("group"), message_queue=queue(client, "t"))
    assert await client.code(get) == Code.OFFSET_NOT_FOUND
    update = UpdateOffsetRequest(group=client.resource("group"), message_queue=queue(client, "t"), offset=7)
    assert await client.code(update) == Code.OK
    assert (await client.call(get, GetOffsetResponse)).offset == 7
    async with remoting_client_of(broker) as remoting:
        assert await remoting.offset(RequestCode.QUERY_CONSUMER_OFFSET, "t", consumerGroup="group") == 7
    negative = UpdateOffsetRequest(
        group=client.resource("group"), message_queue=queue(client, "t"), offset=-1
    )
    assert await client.code(negative) == Code.ILLEGAL_OFFSET


async def test_offsets_of_a_group_that_receives(broker: AsyncBroker, client: MessagingClient) -> None:
    await filled(broker)
    await client.receive("t")
    update = UpdateOffsetRequest(group=client.resource("group"), message_queue=queue(client, "t"), offset=7)
    assert await client.code(update) not in (Code.OK, Code.INTERNAL_ERROR)


async def test_offsets_of_queues(broker: AsyncBroker, client: MessagingClient) -> None:
    await filled(broker)
    await broker.app.broker.delete_records(broker.app.broker.topic("t"), 0, 2)

    async def offset(policy: QueryOffsetPolicy, ms: int | None = None) -> int:
        timestamp = None if ms is None else Timestamp.from_ms(ms)
        request = QueryOffsetRequest(
            message_queue=queue(client, "t"), query_offset_policy=policy, timestamp=timestamp
        )
        answer = await client.call(request, QueryOffsetResponse)
        assert answer.status is not None and answer.status.code == Code.OK
        return answer.offset

    assert await offset(QueryOffsetPolicy.BEGINNING) == 2
    assert await offset(QueryOffsetPolicy.END) == 10
    assert await offset(QueryOffsetPolicy.TIMESTAMP, START + 4500) == 5
    assert await offset(QueryOffsetPolicy.TIMESTAMP, 0) == 2
    assert await offset(QueryOffsetPolicy.TIMESTAMP, START + 99_000) == 10
    request = QueryOffsetRequest(
        message_queue=queue(client, "t"), query_offset_policy=QueryOffsetPolicy.TIMESTAMP
    )
    assert await client.code(request) == Code.BAD_REQUEST


async def test_what_is_refused(broker: AsyncBroker, client: MessagingClient) -> None:
    await filled(broker)
    group = client.resource("group")
    assert await client.code(QueryOffsetRequest()) == Code.BAD_REQUEST
    assert await client.code(GetOffsetRequest(group=group)) == Code.BAD_REQUEST
    assert await client.code(UpdateOffsetRequest(group=group)) == Code.BAD_REQUEST
    for id in (-1, 2, (1 << 31) - 1):
        where = queue(client, "t", id)
        assert await client.code(QueryOffsetRequest(message_queue=where)) == Code.NOT_FOUND
        assert await client.code(GetOffsetRequest(group=group, message_queue=where)) == Code.NOT_FOUND
        assert await pull_code(client, "t", queue=id) == Code.NOT_FOUND
    assert (
        await client.code(GetOffsetRequest(message_queue=queue(client, "t"))) == Code.ILLEGAL_CONSUMER_GROUP
    )
    assert await pull_code(client, "unknown") == Code.TOPIC_NOT_FOUND
    bad = FilterExpression(type=FilterType.SQL, expression="(")
    assert await pull_code(client, "t", filter_expression=bad) == Code.ILLEGAL_FILTER_EXPRESSION
