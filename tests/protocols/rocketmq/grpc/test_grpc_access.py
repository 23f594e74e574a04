"""Which permissions each RPC needs: without one of them it is refused, with just these it is done."""

from collections.abc import AsyncIterator
from itertools import combinations
from typing import Any

import grpc
import grpc.aio
import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.topics import NewTopic
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import MessageQueue
from posthouse.protocols.rocketmq.grpc.messages.enums import Permission as QueuePermission
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageRequest,
    EndTransactionRequest,
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    QueryAssignmentRequest,
    QueryOffsetRequest,
    QueryRouteRequest,
    QueryRouteResponse,
    RecallMessageRequest,
    SendMessageRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import TelemetryCommand
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.access_cases import (
    CASES,
    FIRST,
    GROUP,
    READ,
    RPCS,
    WRITE,
    Case,
    forwarding,
    leased,
)
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient
from tests.protocols.rocketmq.grpc.signed_calls import (
    USERS,
    SignedClient,
    add_keys,
    allow,
    of,
    secured,
    signed,
)


async def answered(client: MessagingClient, request: ProtoMessage) -> tuple[int, str]:
    """Code and message of the status, or how the stream Telemetry ends."""
    if isinstance(request, TelemetryCommand):
        return await _telemetry(client, request)
    rpc = RPCS[type(request).__name__.removesuffix("Request")]
    response: Any
    if rpc.streams_responses:
        response = (await client.responses(request, rpc.response))[0]
    else:
        response = rpc.response.decode(await client.call_bytes(rpc.name, request.encode()))
    return int(response.status.code), response.status.message


async def _telemetry(client: MessagingClient, command: TelemetryCommand) -> tuple[int, str]:
    async with client.telemetry() as stream:
        await stream.write(command.encode())
        try:
            status = (await stream.command()).status
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            return Code.FORBIDDEN, error.details() or ""
    assert status is not None
    return int(status.code), status.message


async def refusal(client: MessagingClient, request: ProtoMessage) -> str:
    """The message of the refusal of a call that nobody is allowed to make, whatever it asks for."""
    if isinstance(request, TelemetryCommand):
        async with client.telemetry() as stream:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await stream.command()  # the stream ends before it has asked for anything
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
            return raised.value.details() or ""
    code, message = await answered(client, request)
    assert code == Code.UNAUTHORIZED, message
    return message


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with secured(offender_wait_seconds=0) as running:
        await add_keys(running)
        await running.app.broker.create_topics([NewTopic(name="t", partitions=1)])
        yield running


@pytest.fixture
async def admin(broker: AsyncBroker) -> AsyncIterator[SignedClient]:
    async with of(broker, "admin") as connected:
        yield connected


@pytest.fixture
async def ann(broker: AsyncBroker) -> AsyncIterator[SignedClient]:
    async with of(broker, "ann") as connected:
        yield connected


def test_every_rpc_is_here() -> None:
    assert {each.rpc for each in CASES} == set(RPCS)


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST)
async def test_nobody(broker: AsyncBroker, admin: SignedClient, case: Case) -> None:
    request = await case.prepare(admin)
    failures = broker.app.broker.access.login_failures
    ends = [broker.app.broker.bounds(topic, 0).end for topic in broker.app.broker.topics]
    async with SignedClient(broker.address("rocketmq_grpc"), "ann") as client:
        client.says({})
        assert "calls have to be signed here" in await refusal(client, request)
        for key, secret in (("admin-key", USERS["ann"]), ("nobody", USERS["admin"])):
            before = failures["rocketmq_grpc"]
            client.says(signed(key, secret))
            assert "a wrong access key or signature" in await refusal(client, request)
            assert failures["rocketmq_grpc"] == before + 1
    assert ends == [broker.app.broker.bounds(topic, 0).end for topic in broker.app.broker.topics]
    assert (await answered(admin, request))[0] == case.done, "it was the signature"


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_permissions(broker: AsyncBroker, admin: SignedClient, ann: SignedClient, case: Case) -> None:
    request = await case.prepare(admin)
    if case.needed:
        for fewer in combinations(case.needed, len(case.needed) - 1):
            await allow(broker, "ann", *fewer)
            code, message = await answered(ann, request)
            assert code == Code.FORBIDDEN, (fewer, message)
            assert "no permission" in message
    await allow(broker, "ann", *case.needed)
    code, message = await answered(ann, request)
    assert code == case.done, message


@pytest.mark.parametrize("case", [each for each in CASES if each.needed], ids=str)
async def test_permissions_for_others(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient, case: Case
) -> None:
    """Of another user, for another operation, or for names that are longer."""
    request = await case.prepare(admin)
    await allow(broker, "ben", *case.needed)
    others = [Operation.DESCRIBE, Operation.DELETE]
    await allow(
        broker,
        "ann",
        *((operation, kind, name) for operation in others for _, kind, name in case.needed),
        *((operation, kind, f"{name}2") for operation, kind, name in case.needed),
    )
    assert (await answered(ann, request))[0] == Code.FORBIDDEN


async def test_what_was_refused_was_not_done(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient
) -> None:
    held = await leased(admin)
    for request in (
        SendMessageRequest(messages=(admin.message("new", b"v"),)),
        QueryRouteRequest(topic=admin.resource("new")),
        admin.receive_request("t", "other"),
        await forwarding(admin),
    ):
        assert (await answered(ann, request))[0] == Code.FORBIDDEN
    assert {each.name for each in broker.app.broker.topics} == {"t"}
    assert "other" not in broker.app.broker.subscriptions
    assert await admin.ack("t", held, group="g") == Code.OK


async def test_the_route_says_what_a_user_may(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient
) -> None:
    for permissions, expected in (
        ((READ,), QueuePermission.READ),
        ((WRITE,), QueuePermission.WRITE),
        ((READ, WRITE), QueuePermission.READ_WRITE),
    ):
        await allow(broker, "ann", *permissions)
        answer = await ann.call(QueryRouteRequest(topic=ann.resource("t")), QueryRouteResponse)
        assert [each.permission for each in answer.message_queues] == [expected]


async def test_whether_a_topic_exists_is_not_told(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient
) -> None:
    await allow(broker, "ann", GROUP)
    for make in (
        lambda topic: QueryRouteRequest(topic=topic),
        lambda topic: QueryAssignmentRequest(topic=topic, group=ann.resource("g")),
        lambda topic: SendMessageRequest(messages=(ann.message(topic.name, b"v"),)),
        lambda topic: ann.receive_request(topic.name, "g"),
        lambda topic: QueryOffsetRequest(message_queue=MessageQueue(topic=topic, id=0)),
        lambda topic: AckMessageRequest(group=ann.resource("g"), topic=topic),
        lambda topic: EndTransactionRequest(topic=topic),
        lambda topic: RecallMessageRequest(topic=topic),
    ):
        code, there = await answered(ann, make(ann.resource("t")))
        assert code == Code.FORBIDDEN
        assert await answered(ann, make(ann.resource("gone"))) == (code, there.replace("'t'", "'gone'"))


async def test_a_namespace_is_part_of_the_name(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient
) -> None:
    await allow(broker, "ann", WRITE)
    ann.namespace = "tenant"
    assert await ann.refused("t") == Code.FORBIDDEN
    await allow(broker, "ann", (Operation.WRITE, Kind.TOPIC, "tenant.t"))
    assert await ann.refused("t") == Code.FORBIDDEN, "it does not exist"
    async with of(broker, "admin") as other:
        other.namespace = "tenant"
        await other.send("t")
    assert await ann.refused("t") == Code.OK


async def test_receipts_of_another_user(broker: AsyncBroker, admin: SignedClient, ann: SignedClient) -> None:
    """Who may consume in a group may settle what others of the group have got, and nothing else."""
    await broker.app.broker.create_topics([NewTopic(name="u", partitions=1)])
    held = await leased(admin)
    other_topic = (Operation.READ, Kind.TOPIC, "u")
    await allow(broker, "ann", READ, other_topic, (Operation.READ, Kind.GROUP, "mine"))
    await admin.send("t", b"mine")
    await ann.receive("t", "mine")
    assert await ann.ack("t", held, group="g") == Code.FORBIDDEN
    assert await ann.ack("t", held, group="mine") == Code.INVALID_RECEIPT_HANDLE
    assert await ann.forward("t", held, group="mine") == Code.INVALID_RECEIPT_HANDLE
    changed = await ann.change("t", held, 0, group="mine")
    assert changed.status is not None and changed.status.code == Code.INVALID_RECEIPT_HANDLE
    await allow(broker, "ann", other_topic, GROUP)
    assert await ann.ack("u", held, group="g") == Code.INVALID_RECEIPT_HANDLE
    assert await ann.ack("t", held, group="g") == Code.FORBIDDEN
    await allow(broker, "ann", READ, GROUP)
    assert await ann.ack("t", held, group="g") == Code.OK


async def test_client_ids_belong_to_one_user(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient
) -> None:
    """Otherwise one would get what is leased to the other, or end it."""
    assert (await answered(admin, NotifyClientTerminationRequest()))[0] == Code.OK
    await admin.beat()
    async with SignedClient(broker.address("rocketmq_grpc"), "admin") as thief:
        thief.says(signed("ann-key", USERS["ann"]))
        for request in (
            NotifyClientTerminationRequest(),
            HeartbeatRequest(),
            thief.receive_request("t", "g"),
        ):
            code, message = await answered(thief, request)
            assert (code, message) == (Code.FORBIDDEN, "the client id 'admin' is used by another user")


async def test_who_may_not_read_decides_nothing(
    broker: AsyncBroker, admin: SignedClient, ann: SignedClient
) -> None:
    """What the group's other consumers want is not passed over for what this one says."""
    await allow(broker, "ann", GROUP)
    async with ann.telemetry() as stream:
        await stream.settings(ann.subscription("g", t="red"))
        assert (await answered(ann, ann.receive_request("t", "g", expression="red")))[0] == Code.FORBIDDEN
        await admin.send("t", b"green", tag="green")
        assert [each.body for each in await admin.receive("t", "g")] == [b"green"]
