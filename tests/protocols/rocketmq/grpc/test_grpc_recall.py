"""RecallMessage: delayed messages, by the handle in the answer to their send."""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType
from posthouse.protocols.rocketmq.grpc.messages.service import RecallMessageRequest, RecallMessageResponse
from posthouse.protocols.rocketmq.grpc.messages.well_known import Timestamp
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import StillBroker, client_of
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, bodies
from tests.protocols.rocketmq.grpc.signed_calls import add_keys, allow, of, secured
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of

FAR_MS = 1 << 45


async def delayed(
    client: MessagingClient, body: bytes, due_ms: int = FAR_MS, topic: str = "t", **system: object
) -> str:
    """The handle."""
    [entry] = (
        await client.send(
            topic,
            body,
            message_type=MessageType.DELAY,
            delivery_timestamp=Timestamp.from_ms(due_ms),
            **system,  # type: ignore[arg-type]
        )
    ).entries
    assert entry.recall_handle
    return entry.recall_handle


async def recall(client: MessagingClient, handle: str, topic: str = "t") -> tuple[int, str]:
    """The code, and the id of the message or why it is not recalled."""
    request = RecallMessageRequest(topic=client.resource(topic), recall_handle=handle)
    answer = await client.call(request, RecallMessageResponse)
    assert answer.status is not None
    done = answer.status.code == Code.OK
    assert bool(answer.message_id) == done
    return int(answer.status.code), answer.message_id if done else answer.status.message


async def all_fired(broker: StillBroker) -> None:
    async with asyncio.timeout(DEADLINE):
        while broker.app.broker.scheduled_messages:
            await asyncio.sleep(0.01)


async def test_a_message_is_recalled(still: StillBroker) -> None:
    due = still.clock.now_ms() + 90_000
    async with client_of(still) as client:
        recalled = await delayed(client, b"recalled", due, message_id="AB12")
        kept = await delayed(client, b"kept", due)
        assert recalled != kept
        for _ in range(2):
            assert await recall(client, recalled) == (Code.OK, "AB12")
        await still.advance(91)
        assert bodies(await client.receive("t", wait=20)) == [b"kept"]
        await all_fired(still)
        assert await client.receive("t") == []
        for handle in (recalled, kept):
            code, why = await recall(client, handle)
            assert code == Code.PRECONDITION_FAILED
            assert "it cannot be recalled" in why


async def test_it_is_too_late_when_it_is_due(still: StillBroker) -> None:
    """Also if it is not delivered yet: the answer is final."""
    async with client_of(still) as client:
        handle = await delayed(client, b"v", still.clock.now_ms() + 90_000)
        still.clock.advance(90)
        assert (await recall(client, handle))[0] == Code.PRECONDITION_FAILED
        assert bodies(await client.receive("t", wait=20)) == [b"v"]


async def test_messages_without_a_handle(still: StillBroker) -> None:
    past = Timestamp.from_ms(still.clock.now_ms() - 1)
    async with client_of(still) as client:
        for system in (
            {},
            {"delivery_timestamp": past, "message_type": MessageType.DELAY},
            {"message_type": MessageType.TRANSACTION},
        ):
            [entry] = (await client.send("t", **system)).entries
            assert entry.recall_handle == ""
            if entry.transaction_id:
                assert (await recall(client, entry.transaction_id))[0] == Code.BAD_REQUEST


@pytest.mark.parametrize(
    "handle", ["", "x", "ä", "=", "\0", "x" * 5000, urlsafe_b64encode(b"v1 t posthouse 1 id").decode()]
)
async def test_garbled_handles(client: MessagingClient, handle: str) -> None:
    await client.send("t")
    code, why = await recall(client, handle)
    assert code == Code.BAD_REQUEST
    assert "no recall handle of this broker" in why


async def test_handles_that_were_changed(broker: AsyncBroker, client: MessagingClient) -> None:
    handle = await delayed(client, b"v")
    text = urlsafe_b64decode(handle)
    for at in range(len(text)):
        changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        assert (await recall(client, urlsafe_b64encode(changed).decode()))[0] == Code.BAD_REQUEST
    assert broker.app.broker.scheduled_messages == 1
    assert (await recall(client, handle))[0] == Code.OK


async def test_a_handle_is_for_its_topic(broker: AsyncBroker, client: MessagingClient) -> None:
    handle = await delayed(client, b"v", topic="%t")
    assert (await recall(client, handle, "other"))[0] == Code.BAD_REQUEST
    assert (await recall(client, handle, ""))[0] == Code.ILLEGAL_TOPIC
    assert broker.app.broker.scheduled_messages == 1
    assert (await recall(client, handle, ".t"))[0] == Code.OK, "as the log writes it"


async def test_a_namespace(broker: AsyncBroker, client: MessagingClient) -> None:
    async with client_of(broker, "tenant", namespace="tenant") as other:
        handle = await delayed(other, b"v")
        assert (await recall(client, handle))[0] == Code.BAD_REQUEST
        assert (await recall(other, handle))[0] == Code.OK


async def test_clients_of_both_protocols_recall_the_same(
    broker: AsyncBroker, client: MessagingClient
) -> None:
    one, other = await delayed(client, b"1", message_id="AB1"), await delayed(client, b"2")
    async with remoting_client_of(broker) as remoting:
        fields = {"producerGroup": "p", "topic": "t", "recallHandle": one, "bname": "posthouse"}
        answer = await remoting.request(RequestCode.RECALL_MESSAGE, fields)
        assert (answer.code, answer.fields) == (0, {"msgId": "AB1"})
        sent = await remoting.send("t", b"3", properties={"TIMER_DELAY_SEC": "3600", "UNIQ_KEY": "AB3"})
        assert await recall(client, sent.fields["recallHandle"]) == (Code.OK, "AB3")
    assert (await recall(client, other))[0] == Code.OK


async def test_other_users_and_a_restart(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await add_keys(broker)
        async with of(broker, "admin") as admin, of(broker, "ann") as ann:
            handles = [await delayed(admin, b"%d" % number) for number in range(3)]
            assert (await recall(ann, handles[0]))[0] == Code.FORBIDDEN
            await allow(broker, "ann", (Operation.READ, Kind.TOPIC, "t"))
            assert (await recall(ann, handles[0]))[0] == Code.FORBIDDEN
            assert broker.app.broker.scheduled_messages == 3
            assert (await recall(admin, handles[0]))[0] == Code.OK
    async with secured(tmp_path) as broker:
        async with of(broker, "ann") as ann:
            assert (await recall(ann, handles[1]))[0] == Code.FORBIDDEN
            await allow(broker, "ann", (Operation.WRITE, Kind.TOPIC, "t"))
            assert (await recall(ann, handles[1]))[0] == Code.OK
        async with of(broker, "admin") as admin:
            assert (await recall(admin, handles[0]))[0] == Code.OK
            assert (await recall(admin, handles[2]))[0] == Code.OK


async def test_a_handle_of_another_broker() -> None:
    """Where logins are required nobody but the broker can make one."""
    async with secured() as one, secured() as other:
        await add_keys(one)
        await add_keys(other)
        async with of(one, "admin") as here, of(other, "admin") as there:
            handle = await delayed(there, b"v")
            await here.send("t")
            assert (await recall(here, handle))[0] == Code.BAD_REQUEST
            assert (await recall(there, handle))[0] == Code.OK


async def test_many_at_once(broker: AsyncBroker, client: MessagingClient) -> None:
    handles = [await delayed(client, b"%d" % number) for number in range(100)]
    answers = await asyncio.gather(*(recall(client, each) for each in handles))
    assert {code for code, _ in answers} == {Code.OK}
