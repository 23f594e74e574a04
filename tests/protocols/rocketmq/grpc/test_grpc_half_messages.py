"""Half messages: sent with type TRANSACTION, ended by EndTransaction, asked about on the stream Telemetry."""

import asyncio

import pytest

from posthouse.broker.half_messages.checks import CHECK_SECONDS, MOST_CHECKS
from posthouse.protocols.rocketmq.codec.codes import PRODUCER_GROUP, TRANSACTION_PREPARED, RequestCode
from posthouse.protocols.rocketmq.codec.message_ids import parse_message_id
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Message
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType, TransactionResolution
from posthouse.protocols.rocketmq.grpc.messages.service import EndTransactionRequest
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import StillBroker, client_of
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient, Telemetry, bodies, system
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of

COMMIT = TransactionResolution.COMMIT
ROLLBACK = TransactionResolution.ROLLBACK
UNKNOWN = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED


async def prepare(client: MessagingClient, body: bytes = b"half", **others: object) -> str:
    """The id of the transaction."""
    answer = await client.send("orders", body, message_type=MessageType.TRANSACTION, **others)  # type: ignore[arg-type]
    [entry] = answer.entries
    assert entry.transaction_id
    return entry.transaction_id


async def asked(telemetry: Telemetry) -> RecoverOrphanedTransactionCommand:
    found = (await telemetry.command()).recover_orphaned_transaction_command
    assert found is not None
    return found


async def test_a_message_is_seen_when_it_is_committed(client: MessagingClient) -> None:
    yes = await prepare(client, b"yes", tag="red", keys=("k",), message_id="ID", properties={"a": "b"})
    no = await prepare(client, b"no")
    assert await client.receive("orders") == []
    assert await client.end_transaction("orders", no, ROLLBACK) == Code.OK
    assert await client.end_transaction("orders", yes, COMMIT) == Code.OK
    [message] = await client.receive("orders", wait=20)
    found = system(message)
    assert (message.body, message.user_properties) == (b"yes", {"a": "b"})
    assert (found.tag, found.keys, found.message_id) == ("red", ("k",), "ID")


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
async def test_a_decision_is_final(
    client: MessagingClient, first: TransactionResolution, caplog: pytest.LogCaptureFixture
) -> None:
    second = ROLLBACK if first is COMMIT else COMMIT
    id = await prepare(client)
    assert await client.end_transaction("orders", id, first) == Code.OK
    assert await client.end_transaction("orders", id, first) == Code.OK
    assert await client.end_transaction("orders", id, second) == Code.PRECONDITION_FAILED
    assert "was committed before" in caplog.text or "was rolled back, or parked before" in caplog.text
    assert bodies(await client.receive("orders")) == ([b"half"] if first is COMMIT else [])


async def test_what_is_not_decided(client: MessagingClient) -> None:
    id = await prepare(client)
    assert await client.end_transaction("orders", id, UNKNOWN) == Code.OK
    assert await client.end_transaction("orders", id, 77) == Code.OK  # type: ignore[arg-type]
    assert await client.receive("orders") == []
    assert await client.end_transaction("orders", id, COMMIT) == Code.OK
    assert bodies(await client.receive("orders")) == [b"half"]


async def test_ids_that_are_wrong(client: MessagingClient) -> None:
    id = await prepare(client)
    await client.send("others")
    for wrong in (
        "",
        "x",
        id[:-1],
        id + "0",
        "F" * 16,
        "-" + id[1:],
        "+" + id[1:],
        id[0] + "_" + id[2:],
        "G" * 16,
        "0" * 16 + "x" * 10_000,
    ):
        assert await client.end_transaction("orders", wrong, COMMIT) == Code.INVALID_TRANSACTION_ID, wrong
    assert await client.end_transaction("others", id, COMMIT) == Code.INVALID_TRANSACTION_ID
    assert await client.end_transaction("unknown", id, COMMIT) == Code.TOPIC_NOT_FOUND
    assert (
        await client.code(EndTransactionRequest(transaction_id=id, resolution=COMMIT)) == Code.ILLEGAL_TOPIC
    )
    assert await client.end_transaction("orders", id, ROLLBACK) == Code.OK


async def test_half_messages_of_remoting_are_not_decided(
    broker: AsyncBroker, client: MessagingClient
) -> None:
    properties = {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: "producers"}
    async with remoting_client_of(broker) as remoting:
        answer = await remoting.send("orders", b"v", properties=properties)
        position = parse_message_id(answer.fields["msgId"]).position
        id = await prepare(client)
        wrong = f"{int(id, 16) - 1:016X}"
        assert await client.end_transaction("orders", wrong, COMMIT) == Code.INVALID_TRANSACTION_ID
        fields: dict[str, str | int] = {
            "producerGroup": "producers",
            "commitLogOffset": position + 1,
            "commitOrRollback": 8,
            "tranStateTableOffset": 0,
            "msgId": "",
        }
        assert (await remoting.request(RequestCode.END_TRANSACTION, fields)).code != 0
    assert await client.receive("orders") == []


async def test_a_producer_is_asked(still: StillBroker) -> None:
    """Any that sends to the topic, if the one that has sent the message is gone."""
    async with client_of(still) as gone:
        id = await prepare(gone, b"asked", tag="red", keys=("k",), message_id="ID", properties={"a": "b"})
    async with client_of(still, "other") as other, other.telemetry() as telemetry:
        answered = await telemetry.settings(other.publishing("orders"))
        assert answered.publishing is not None and not answered.publishing.validate_message_type
        await still.advance(5.9)
        await still.advance(0.2)
        command = await asked(telemetry)
        assert command.transaction_id == id
        message = command.message
        assert message is not None and message.topic == other.resource("orders")
        assert (message.body, message.user_properties) == (b"asked", {"a": "b"})
        found = system(message)
        assert (found.tag, found.keys, found.message_id) == ("red", ("k",), "ID")
        assert found.message_type == MessageType.TRANSACTION
        await still.advance(CHECK_SECONDS - 1)
        await still.advance(1.1)
        assert (await asked(telemetry)).transaction_id == id
        assert await other.end_transaction("orders", id, COMMIT) == Code.OK
        assert bodies(await other.receive("orders")) == [b"asked"]


async def test_the_first_check_is_as_the_message_says(still: StillBroker) -> None:
    async with client_of(still) as client, client.telemetry() as telemetry:
        await telemetry.settings(client.publishing("orders"))
        late = await prepare(client, orphaned_transaction_recovery_duration=Duration(seconds=60))
        soon = await prepare(client)
        await still.advance(7)
        assert (await asked(telemetry)).transaction_id == soon
        assert await client.end_transaction("orders", soon, ROLLBACK) == Code.OK
        await still.advance(54)
        assert (await asked(telemetry)).transaction_id == late


async def test_only_producers_of_the_topic_are_asked(still: StillBroker) -> None:
    async with (
        client_of(still, "a") as one,
        client_of(still, "b") as two,
        one.telemetry() as of_orders,
        two.telemetry() as of_others,
    ):
        await of_orders.settings(one.publishing("orders"))
        await of_others.settings(two.publishing("others"))
        await one.send("others", b"half", message_type=MessageType.TRANSACTION)
        id = await prepare(two)
        for _ in range(3):
            await still.advance(CHECK_SECONDS)
            command = await asked(of_others)
            assert command.message is not None and command.message.topic == two.resource("others")
            assert (await asked(of_orders)).transaction_id == id


async def test_who_has_no_stream_is_not_asked(still: StillBroker) -> None:
    """And checks that reach nobody do not count."""
    async with client_of(still) as client:
        async with client.telemetry() as telemetry:
            await telemetry.settings(client.publishing("orders"))
            id = await prepare(client)
            await telemetry.close()
        for _ in range(MOST_CHECKS + 2):
            await still.advance(CHECK_SECONDS)
        assert len(still.app.broker.half_messages) == 1
        async with client.telemetry() as telemetry:
            await telemetry.settings(client.publishing("orders"))
            await still.advance(CHECK_SECONDS)
            assert (await asked(telemetry)).transaction_id == id


async def test_the_first_message_of_a_stream_answers_its_settings(still: StillBroker) -> None:
    """A client that comes back by another stream is known to send to the topic before it says so again."""
    async with client_of(still) as client:
        async with client.telemetry() as before:
            await before.settings(client.publishing("orders"))
        id = await prepare(client)
        async with client.telemetry() as telemetry:
            await telemetry.write(TelemetryCommand().encode())
            await client.beat()  # by the same connection: the broker has the stream when it answers
            await still.advance(CHECK_SECONDS)
            await telemetry.settings(client.publishing("orders"))
            await still.advance(CHECK_SECONDS)
            assert (await asked(telemetry)).transaction_id == id


async def test_a_message_that_nobody_decides_is_parked(still: StillBroker) -> None:
    async with client_of(still) as client, client.telemetry() as telemetry:
        await telemetry.settings(client.publishing("orders"))
        id = await prepare(client, b"never")
        for _ in range(MOST_CHECKS):
            await still.advance(CHECK_SECONDS)
            assert (await asked(telemetry)).transaction_id == id
        await still.advance(CHECK_SECONDS)
        async with asyncio.timeout(30):
            while len(still.app.broker.half_messages):
                await asyncio.sleep(0.001)
        assert await client.end_transaction("orders", id, COMMIT) == Code.PRECONDITION_FAILED
        parked: list[Message] = await client.receive("posthouse.undecided")
        assert bodies(parked) == [b"never"]
        assert await client.receive("orders") == []


async def test_a_producer_of_a_namespace_is_asked_by_its_names(still: StillBroker) -> None:
    async with client_of(still, namespace="shop") as client, client.telemetry() as telemetry:
        await telemetry.settings(client.publishing("orders"))
        id = await prepare(client)
        await still.advance(7)
        command = await asked(telemetry)
        assert command.message is not None and command.message.topic == client.resource("orders")
        assert await client.end_transaction("orders", id, COMMIT) == Code.OK
        assert bodies(await client.receive("orders")) == [b"half"]
