"""Consumer groups: where they begin, who belongs to them, and when their consumers are gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.grpc.clients import EXPIRY_SECONDS
from posthouse.protocols.rocketmq.grpc.departed_filters import KEPT_SECONDS
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.enums import ClientType
from posthouse.protocols.rocketmq.grpc.messages.service import ReceiveMessageResponse
from posthouse.protocols.rocketmq.grpc.session import MessagingSession
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT, StillBroker, client_of, configure
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, attempt, bodies
from tests.protocols.rocketmq.remoting_client import RemotingClient, group
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of


async def commit(client: RemotingClient, queue: int, offset: int) -> None:
    fields: dict[str, str | int] = {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": queue,
        "commitOffset": offset,
    }
    assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0


async def test_a_new_group_begins_with_the_first_message(client: MessagingClient) -> None:
    await client.send("orders", b"before")
    assert bodies(await client.receive("orders")) == [b"before"]


async def test_a_new_group_of_a_topic_without_its_first_messages(
    broker: AsyncBroker, client: MessagingClient
) -> None:
    await client.send("orders", *[b"%d" % number for number in range(8)])
    for queue in range(4):
        await broker.app.broker.delete_records(broker.app.broker.topic("orders"), queue, 1)
    assert await client.receive("orders") == []
    await client.send("orders", b"new")
    assert bodies(await client.receive("orders")) == [b"new"]


async def test_a_group_keeps_settings_that_it_has(broker: AsyncBroker, client: MessagingClient) -> None:
    await configure(broker, "group", share_delivery_count_limit="5")
    await client.send("orders")
    await client.receive("orders")
    config = broker.app.broker.group_configs.get(GroupId("group"))
    assert config.share_delivery_count_limit == 5
    assert config.share_isolation_level == "read_committed"


async def test_many_consumers_create_a_group_at_once(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send("orders", *[b"%02d" % number for number in range(40)])
    found = await asyncio.gather(*(client.receive("orders", most=10) for _ in range(4)))
    assert bodies([each for messages in found for each in messages]) == [b"%02d" % each for each in range(40)]


# Groups that clients of the remoting protocol have used


async def test_a_group_goes_on_where_it_has_committed(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send("orders", *[b"%d" % number for number in range(8)])
    async with remoting_client_of(broker) as remoting:
        for queue in range(4):
            await commit(remoting, queue, 1 + queue % 2)
        messages = await client.receive("orders")
        assert len(messages) == 2
        assert await client.ack("orders", *messages) == Code.OK
        assert await client.receive("orders") == []
        offsets = broker.app.broker.groups.offsets
        partitions = broker.app.broker.topic("orders").partition_ids()
        assert [offsets.get(GroupId("group"), each) for each in partitions] == [None] * 4


async def test_a_group_with_consumers_of_remoting_is_refused(
    broker: AsyncBroker, client: MessagingClient
) -> None:
    await client.send("orders", b"v")
    async with remoting_client_of(broker) as remoting:
        assert (await remoting.beat("client", group("group", orders="*"))).code == 0
        assert await client.receive_code("orders") == Code.BAD_REQUEST
        assert GroupId("group") not in broker.app.broker.subscriptions
    request = client.receive_request("orders")
    async with asyncio.timeout(DEADLINE):  # until the broker sees that the other connection is closed
        while not [each for each in await client.responses(request, ReceiveMessageResponse) if each.message]:
            await asyncio.sleep(0.001)


# Who is gone


async def swept(broker: StillBroker) -> None:
    """As connections do once a second."""
    for served in broker.app._served:
        for connection in served.listener:
            session = getattr(connection, "session", None)
            if isinstance(session, MessagingSession):
                session.tick()


async def test_a_consumer_is_silent(still: StillBroker) -> None:
    async with client_of(still) as silent, client_of(still, "other") as other:
        await silent.send("orders", b"v")
        assert len(await silent.receive("orders", invisible=None)) == 1
        await still.advance(EXPIRY_SECONDS - 1)
        await swept(still)
        assert await other.receive("orders") == []
        await still.advance(10)
        await other.beat("group")
        await swept(still)
        [message] = await other.receive("orders")
        assert (message.body, attempt(message)) == (b"v", 2)


async def test_a_consumer_says_that_it_lives(still: StillBroker) -> None:
    async with client_of(still) as beating, client_of(still, "other") as other:
        await beating.send("orders", b"v")
        [message] = await beating.receive("orders", invisible=None)
        for _ in range(5):
            await still.advance(EXPIRY_SECONDS - 1)
            await beating.beat("group")
            await swept(still)
        assert await other.receive("orders") == []
        assert await beating.ack("orders", message) == Code.OK


async def test_a_consumer_says_that_it_ends(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send("orders", b"v")
    [message] = await client.receive("orders", invisible=None)
    async with client_of(broker, "other") as other:
        call = asyncio.create_task(other.receive("orders", wait=20))
        answer = await client.terminate("group")
        assert answer.status is not None and answer.status.code == Code.OK
        assert bodies(await call) == [b"v"]
    assert await client.ack("orders", message) == Code.INVALID_RECEIPT_HANDLE


async def test_a_consumer_that_is_replaced_loses_nothing(still: StillBroker) -> None:
    """What only it wanted is kept for its successor, also from a third that has never seen it."""
    async with client_of(still, "red") as red, client_of(still, "green") as green:
        await know_the_consumers(still, red, green)
        await red.terminate("group")
        await red.send("orders", b"red", tag="red")
        await still.advance(KEPT_SECONDS - 1)
        await green.beat("group")
        await swept(still)
        assert await green.receive("orders", expression="green") == []
    async with client_of(still, "blue") as blue, client_of(still, "successor") as successor:
        assert await blue.receive("orders", expression="blue") == []
        assert lag(still) == 1
        assert bodies(await successor.receive("orders", expression="red")) == [b"red"]


async def test_the_filter_of_a_consumer_that_does_not_come_back(still: StillBroker) -> None:
    """What only it wanted is passed over after a while, and not before; so is what comes then."""
    async with client_of(still, "red") as red, client_of(still, "green") as green:
        await know_the_consumers(still, red, green)
        await red.send("orders", b"red", tag="red")
        await red.terminate("group")
        await still.advance(KEPT_SECONDS - 1)
        await green.beat("group")
        await swept(still)
        assert await green.receive("orders", expression="green") == []
        assert lag(still) == 1
        await still.advance(6)
        await swept(still)
        assert await green.receive("orders", expression="green") == []
        assert lag(still) == 0


async def know_the_consumers(still: StillBroker, red: MessagingClient, green: MessagingClient) -> None:
    await red.beat("group")
    await still.advance(EXPIRY_SECONDS)  # since the broker was started
    await swept(still)
    await red.send("orders", b"to make the topic", tag="none")
    for consumer, tag in ((red, "red"), (green, "green")):
        assert await consumer.receive("orders", expression=tag) == []


async def test_consumers_from_before_a_restart(tmp_path: Path) -> None:
    """The first that is back does not pass over what the others want."""
    async with restarted(tmp_path) as (red, green):
        await red.send("orders", b"to make the topic", tag="none")
        for consumer, tag in ((red, "red"), (green, "green")):
            assert await consumer.receive("orders", expression=tag) == []
        await red.send("orders", b"red", tag="red")
    async with restarted(tmp_path) as (red, green):
        assert await green.receive("orders", expression="green") == []
        assert bodies(await red.receive("orders", expression="red")) == [b"red"]


@asynccontextmanager
async def restarted(data: Path) -> AsyncIterator[tuple[MessagingClient, MessagingClient]]:
    async with (
        AsyncBroker(data=data, rocketmq_grpc=ANY_PORT) as broker,
        client_of(broker, "red") as red,
        client_of(broker, "green") as green,
    ):
        yield red, green


async def test_consumers_from_before_a_restart_do_not_come_back(still: StillBroker) -> None:
    """After a while nobody waits for them."""
    async with client_of(still) as client:
        await client.send("orders", b"red", tag="red")
        assert await client.receive("orders", expression="green") == []
        assert lag(still) == 1
        await still.advance(EXPIRY_SECONDS - 1)
        await client.beat("group")
        await swept(still)
        await still.advance(6)
        await swept(still)
        assert await client.receive("orders", expression="green") == []
        assert lag(still) == 0


def lag(broker: "StillBroker | AsyncBroker") -> int:
    """Messages that are neither acknowledged nor passed over."""
    found = broker.app.broker.subscriptions.progress(GroupId("group"))
    topic = broker.app.broker.topic("orders")
    return sum(
        broker.app.broker.bounds(topic, partition.index).end - subscribed.progress.next_unsettled(0)
        for partition, subscribed in found.items()
    )


async def test_heartbeats(client: MessagingClient) -> None:
    for kind in (*ClientType, 99):
        answer = await client.beat("group", kind)
        assert answer.status is not None and answer.status.code == Code.OK
        answer = await client.beat(None, kind)
        assert answer.status is not None and answer.status.code == Code.OK
    answer = await client.beat("a b")
    assert answer.status is not None and answer.status.code == Code.ILLEGAL_CONSUMER_GROUP
