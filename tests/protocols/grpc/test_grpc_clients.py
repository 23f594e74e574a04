"""grpcio, as it is, against the server."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from posthouse.protocols.grpc.server import GrpcLimits
from posthouse.protocols.tls import Certificates
from posthouse.settings import ClientCertificates
from tests.certificates import Authority
from tests.protocols.grpc.served import DEADLINE, MIB, Served, serving

UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as running:
        yield running


@pytest.fixture
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(served.target, options=UNLIMITED) as opened:
        yield opened


async def ask(channel: grpc.aio.Channel, name: str, request: bytes = b"", **options: Any) -> bytes:
    answer: bytes = await channel.unary_unary(f"/test/{name}")(request, timeout=DEADLINE, **options)
    return answer


async def refusal(channel: grpc.aio.Channel, name: str, request: bytes = b"", **options: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(channel, name, request, **options)
    return caught.value


@pytest.mark.parametrize("size", [0, 1, 1000, 16_379, 16_384, 70_000, 3 * MIB])
async def test_unary(channel: grpc.aio.Channel, size: int) -> None:
    for name in ("echo", "slow_echo"):
        assert await ask(channel, name, bytes(size)) == bytes(size)


async def test_many_at_a_time(served: Served, channel: grpc.aio.Channel) -> None:
    requests = [b"%d" % each * 1000 for each in range(300)]
    names = ["echo", "slow_echo"] * 150
    answers = await asyncio.gather(*map(lambda *each: ask(channel, *each), names, requests))
    assert answers == requests
    [connection] = await served.connections(1)
    assert connection._assembled == connection._flow.in_flight == connection._working == 0
    counted = {api: metrics.seconds.count for _, api, metrics in served.requests}
    assert counted == {"echo": 150, "slow_echo": 150}


async def test_large_messages_at_a_time(served: Served, channel: grpc.aio.Channel) -> None:
    """More than there is room for at once, in both directions."""
    requests = [bytes([each]) * (3 * MIB) for each in range(8)]
    assert await asyncio.gather(*(ask(channel, "slow_echo", each) for each in requests)) == requests
    [connection] = await served.connections(1)
    assert connection._assembled == connection._flow.in_flight == connection._working == 0
    assert connection.room._used == 0 and not connection.room.is_awaited


async def test_a_message_that_is_too_large() -> None:
    limits = GrpcLimits(max_message_bytes=1000)
    async with (
        serving(limits=limits) as served,
        grpc.aio.insecure_channel(served.target, options=UNLIMITED) as channel,
    ):
        assert await ask(channel, "size", bytes(1000)) == b"1000"
        for size in (1001, 5 * MIB):
            error = await refusal(channel, "size", bytes(size))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert error.details() == "a message is larger than 1000 bytes"
        error = await refusal(channel, "size", bytes(1001), compression=grpc.Compression.Gzip)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await ask(channel, "size", b"x") == b"1"


async def test_compressed_requests(channel: grpc.aio.Channel) -> None:
    assert await ask(channel, "size", bytes(MIB), compression=grpc.Compression.Gzip) == b"%d" % MIB
    error = await refusal(channel, "size", bytes(MIB), compression=grpc.Compression.Deflate)
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "deflate" in error.details()


@pytest.mark.parametrize(
    ("name", "request_", "code", "details"),
    [
        ("failing", b"known", grpc.StatusCode.NOT_FOUND, "100 % größer\nnot here"),
        ("failing_at_once", b"known", grpc.StatusCode.NOT_FOUND, "at once"),
        ("failing", b"itself", grpc.StatusCode.ABORTED, "by itself"),
        ("failing", b"long", grpc.StatusCode.ABORTED, "ü" * 1000),
        ("nothing", b"", grpc.StatusCode.UNIMPLEMENTED, "there is no method /test/nothing"),
    ],
)
async def test_errors(
    channel: grpc.aio.Channel, name: str, request_: bytes, code: grpc.StatusCode, details: str
) -> None:
    error = await refusal(channel, name, request_)
    assert (error.code(), error.details()) == (code, details)


@pytest.mark.parametrize(
    ("name", "request_"), [("failing", b""), ("failing_at_once", b""), ("failing", b"none")]
)
async def test_faults_of_handlers(
    served: Served,
    channel: grpc.aio.Channel,
    caplog: pytest.LogCaptureFixture,
    name: str,
    request_: bytes,
) -> None:
    error = await refusal(channel, name, request_)
    assert error.code() == grpc.StatusCode.INTERNAL
    assert error.details() == "the broker has failed; its log says why"
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert name in record.getMessage()
    assert served.requests.of("test", name).errors == 1
    [connection] = await served.connections(1)
    assert connection._working == 0


async def test_metadata(channel: grpc.aio.Channel) -> None:
    sent = (("x-mq-client-id", "c 1"), ("many", "a"), ("many", "b"))
    assert await ask(channel, "metadata", b"x-mq-client-id", metadata=sent) == b"c 1"
    assert await ask(channel, "metadata", b"many", metadata=sent) == b"a,b"
    assert await ask(channel, "metadata", b"missing", metadata=sent) == b"-"
    assert await ask(channel, "metadata", b":path", metadata=sent) == b"-"


async def test_too_much_metadata(channel: grpc.aio.Channel) -> None:
    # grpcio keeps to the announced limit by itself, and says so
    error = await refusal(channel, "metadata", b"x", metadata=(("x", "y" * 20_000),))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await ask(channel, "metadata", b"x", metadata=(("x", "y"),)) == b"y"


async def test_deadlines(served: Served, channel: grpc.aio.Channel) -> None:
    left = float(await channel.unary_unary("/test/remaining")(b"", timeout=100))
    assert 50 < left <= 110  # clients round it up
    assert await channel.unary_unary("/test/remaining")(b"") == b"None"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/test/waiting")(b"", timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await served.handlers.noted("cancelled")


async def test_deadlines_that_the_server_enforces(served: Served, channel: grpc.aio.Channel) -> None:
    call = channel.unary_unary("/test/waiting")(b"", timeout=DEADLINE)
    await served.handlers.noted("waiting")
    [connection] = await served.connections(1)
    [stream] = connection.http2.streams.values()
    connection.tick()
    stream.call.deadline = 0.0
    connection.tick()
    assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert await call.details() == "the deadline has passed"
    await served.handlers.noted("cancelled")


async def test_cancellation(served: Served, channel: grpc.aio.Channel) -> None:
    for name, begun, ended in (
        ("waiting", "waiting", "cancelled"),
        ("cancellable", "asked", "let go"),
    ):
        call = channel.unary_unary(f"/test/{name}")(b"")
        await served.handlers.noted(begun)
        call.cancel()
        await served.handlers.noted(ended)
        served.handlers.seen.clear()
    [connection] = await served.connections(1)
    async with asyncio.timeout(DEADLINE):
        while connection._working or connection._flow.in_flight:
            await asyncio.sleep(0.001)


async def test_late_answers_to_cancelled_calls(served: Served, channel: grpc.aio.Channel) -> None:
    call = channel.unary_unary("/test/answered_later")(b"hello")
    await served.handlers.noted("asked")
    call.cancel()
    [later] = served.handlers.later
    async with asyncio.timeout(DEADLINE):
        while not later.is_ended:
            await asyncio.sleep(0.001)
    [connection] = await served.connections(1)
    assert connection._flow.in_flight == 5  # the handler still has the request
    later.answer(b"too late")
    assert connection._flow.in_flight == connection._working == 0
    assert await ask(channel, "echo", b"again") == b"again"


async def test_answers_from_a_callback(served: Served, channel: grpc.aio.Channel) -> None:
    calls = [channel.unary_unary("/test/answered_later")(b"", timeout=DEADLINE) for _ in range(3)]
    while len(served.handlers.later) < 3:
        await asyncio.sleep(0.001)
    for index, later in enumerate(reversed(served.handlers.later)):
        later.answer(b"%d" % index)
    assert sorted([await each for each in calls]) == [b"0", b"1", b"2"]


async def test_a_stream_of_answers(served: Served, channel: grpc.aio.Channel) -> None:
    repeated = channel.unary_stream("/test/repeated")
    for count, size in ((0, 4), (1, 4), (1000, 100), (20, MIB)):
        answers = [each async for each in repeated(b"%d %d" % (count, size), timeout=DEADLINE)]
        assert [int.from_bytes(each[:4]) for each in answers] == list(range(count))
        assert all(len(each) == size for each in answers)


async def test_a_stream_that_fails_midway(channel: grpc.aio.Channel) -> None:
    answers = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for each in channel.unary_stream("/test/failing_midway")(b"", timeout=DEADLINE):
            answers.append(each)  # noqa: PERF401 - what came before the error counts
    assert answers == [b"first"]
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.DATA_LOSS, "midway")


async def test_a_client_that_does_not_read_a_stream_holds_it_up(
    served: Served, channel: grpc.aio.Channel
) -> None:
    call = channel.unary_stream("/test/endless")(b"")
    assert len(await call.read()) == 10_000
    seen = -1
    while seen != len(served.handlers.seen):  # until nothing is sent any more
        seen = len(served.handlers.seen)
        await asyncio.sleep(0.3)
    [connection] = await served.connections(1)
    assert connection._held() < 100_000 and connection._flow.outbox.unsent == 0
    assert await ask(channel, "echo", b"others go on") == b"others go on"
    call.cancel()
    await served.handlers.noted("cancelled")


async def test_a_conversation(served: Served, channel: grpc.aio.Channel) -> None:
    call = channel.stream_stream("/test/chat")(timeout=DEADLINE)
    for each in (b"one", b"two", b"x" * MIB, b"", b"y" * MIB):
        await call.write(each)
        assert await call.read() == each.upper()
    [pushed] = served.handlers.pushed
    assert pushed.push(b"unasked")
    assert await call.read() == b"unasked"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    await served.handlers.noted("client has ended")
    assert await call.code() == grpc.StatusCode.OK
    assert not pushed.push(b"too late")


@pytest.mark.parametrize(
    ("said", "code"), [(b"stop", grpc.StatusCode.OK), (b"fail", grpc.StatusCode.INVALID_ARGUMENT)]
)
async def test_a_conversation_that_the_server_ends(
    channel: grpc.aio.Channel, said: bytes, code: grpc.StatusCode
) -> None:
    call = channel.stream_stream("/test/chat")(timeout=DEADLINE)
    await call.write(said)
    assert await call.code() == code


async def test_a_conversation_that_the_client_cancels(served: Served, channel: grpc.aio.Channel) -> None:
    call = channel.stream_stream("/test/chat")(timeout=DEADLINE)
    await call.write(b"one")
    assert await call.read() == b"ONE"
    call.cancel()
    await served.handlers.noted("cancelled")


async def test_a_handler_that_does_not_read_holds_its_client_up(
    served: Served, channel: grpc.aio.Channel
) -> None:
    sent = 0

    async def requests() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            yield bytes(100_000)
            sent += 1

    call = channel.stream_stream("/test/unread")(requests(), timeout=DEADLINE)
    seen = -1
    while not sent or seen != sent:
        seen = sent
        await asyncio.sleep(0.3)
    assert sent < 50
    [connection] = await served.connections(1)
    assert connection._held() < 2 * MIB
    served.handlers.go.set()
    assert await call.read() == b"10000000"
    assert connection._assembled == 0


async def test_the_end_of_the_connection_ends_its_calls(served: Served) -> None:
    channel = grpc.aio.insecure_channel(served.target)
    call = channel.stream_stream("/test/chat")()
    await call.write(b"one")
    assert await call.read() == b"ONE"
    [connection] = await served.connections(1)
    connection.abort()  # the same for the broker as a client that disappears; grpcio keeps connections
    await served.handlers.noted("cancelled")
    await served.connections(0)
    async with asyncio.timeout(DEADLINE):
        while connection._working:
            await asyncio.sleep(0.001)
    await channel.close()


async def test_a_stop_answers_what_was_asked_and_ends_conversations(
    served: Served, channel: grpc.aio.Channel
) -> None:
    chat = channel.stream_stream("/test/chat")(timeout=DEADLINE)
    await chat.write(b"one")
    assert await chat.read() == b"ONE"
    later = channel.unary_unary("/test/waiting")(b"answer me", timeout=DEADLINE)
    await served.handlers.noted("waiting")
    served.listener.close()
    assert await chat.code() == grpc.StatusCode.UNAVAILABLE
    assert await chat.details() == "the broker stops"
    await served.handlers.noted("cancelled")
    [connection] = await served.connections(1)
    assert connection.is_finishing
    served.handlers.go.set()
    assert await later == b"answer me"
    await served.connections(0)


async def test_tls_and_plaintext_on_one_port(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.issue()
    certificates = Certificates(identity.certificate, identity.key, ClientCertificates.OFF, None)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    async with (
        serving(certificates=certificates) as served,
        grpc.aio.insecure_channel(served.target) as plain,
        grpc.aio.secure_channel(served.target, credentials, options=UNLIMITED) as secure,
    ):
        assert await ask(plain, "echo", b"plain") == b"plain"
        assert await ask(secure, "echo", bytes(3 * MIB)) == bytes(3 * MIB)
        assert sorted(each.has_tls for each in await served.connections(2)) == [False, True]
        assert sorted(each.info.has_tls for each in await served.connections(2)) == [False, True]


async def test_a_client_that_was_served_is_proven(served: Served, channel: grpc.aio.Channel) -> None:
    assert await ask(channel, "echo", b"x") == b"x"
    assert served.listener._gate.unproven == 0
    [connection] = await served.connections(1)
    assert connection.info.client.startswith("grpc-python")
