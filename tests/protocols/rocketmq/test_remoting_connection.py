"""Connections: frames good and bad, limits, and the end."""

import asyncio
import gc
import logging
import weakref
from typing import Any

import pytest

from posthouse.listener_settings import Address
from posthouse.protocols.pace import SLOW_SECONDS
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import RESPONSE, Command, Serialization
from posthouse.protocols.rocketmq.codec.frames import encode_command
from posthouse.protocols.rocketmq.codec.hosts import Host, unpack_host
from posthouse.protocols.rocketmq.codec.message_ids import parse_message_id
from posthouse.protocols.rocketmq.codec.routes import decode_route
from posthouse.protocols.rocketmq.remoting.connection import RemotingConnection
from posthouse.testing import AsyncBroker
from tests.protocols.admin.metrics.scraping import scrape
from tests.protocols.rocketmq.codec.rocketmq_cases import frame, json_frame
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, group

ROCKETMQ = Address("127.0.0.1", 0)


def rocketmq(**settings: Any) -> AsyncBroker:
    return AsyncBroker(rocketmq=ROCKETMQ, **settings)


async def connections(broker: AsyncBroker, count: int) -> list[RemotingConnection]:
    [listener] = [each.listener for each in broker.app._served if each.name == "rocketmq"]
    async with asyncio.timeout(DEADLINE):
        while len(listener) != count:
            await asyncio.sleep(0.001)
    return [each for each in listener if isinstance(each, RemotingConnection)]


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_codes_that_are_not_supported(broker: AsyncBroker, serialization: Serialization) -> None:
    async with client_of(broker, serialization) as client:
        for code in (0, 1, 324, 370, 30_000, 3442, -5):
            answer = await client.request(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f"request code {code} is not supported"
            client.oneway(code)
        assert (await client.request(105, {"topic": "TBW102"})).code == 0


async def test_answers_are_not_answered(client: RemotingClient) -> None:
    for code in (0, 34, 310):
        client.writer.write(encode_command(Command(code, 7, RESPONSE)))
    assert (await client.request(105, {"topic": "TBW102"})).code == 0


async def test_frames_however_they_are_cut(client: RemotingClient) -> None:
    answer = asyncio.get_running_loop().create_future()
    client._waiting[7] = answer
    fields = {name: str(value) for name, value in client.send_fields("t").items()}
    sent = encode_command(Command(RequestCode.SEND_MESSAGE_V2, 7, fields=fields, body=b"hello"))
    for at in range(len(sent)):
        client.writer.write(sent[at : at + 1])
        await client.writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE):
        assert (await answer).code == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\0\0\0",
        b"\x7f\xff\xff\xff\0\0\0\0",
        frame(b"{", b""),
        frame(b"[]", b""),
        frame(b"{}", b"", serialization=1),
        frame(b"{}", b"", serialization=2),
        json_frame(opaque="x"),
        json_frame(extFields={"a": []}),
    ],
)
async def test_bad_frames_end_the_connection(
    broker: AsyncBroker, client: RemotingClient, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests before them are answered."""
    before = client.start(105, {"topic": "TBW102"})
    client.writer.write(data)
    await client.ended()
    assert (await before).code == 0
    assert len(broker.app._gate._offences) == 1
    assert "closing the RocketMQ connection from" in caplog.text


async def test_a_connection_that_ends_within_a_frame(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = await RemotingClient.open(broker.address("rocketmq"))
    client.writer.write(json_frame()[:-1])
    [connection] = await connections(broker, 1)
    while not connection._decoder.held:
        await asyncio.sleep(0.001)
    await client.close()
    await connections(broker, 0)
    assert "ended in the middle of a request" in caplog.text


async def test_a_frame_that_is_too_large() -> None:
    async with rocketmq(max_request_bytes=100_000) as broker, client_of(broker) as client:
        assert (await client.send("t", bytes(90_000))).code == 0
        client.oneway(310, {}, bytes(100_001))
        await client.ended()


@pytest.mark.parametrize("first", [RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2])
async def test_any_request_proves_the_client(broker: AsyncBroker, client: RemotingClient, first: int) -> None:
    """Whatever its answer: otherwise the connection would be closed after a while."""
    await connections(broker, 1)
    assert len(broker.app._gate._unproven) == 1
    await client.request(first, {"topic": "none", "b": "a b"})
    assert not broker.app._gate._unproven
    [connection] = await connections(broker, 1)
    assert connection.info.client == "GO 317"
    assert connection.info.peer == "{}:{}".format(*client.writer.get_extra_info("sockname"))


async def test_no_more_connections_than_allowed() -> None:
    async with rocketmq(max_connections=1) as broker, client_of(broker) as first:
        assert (await first.request(105, {"topic": "TBW102"})).code == 0
        async with client_of(broker) as second:
            await second.ended()
        assert (await first.request(105, {"topic": "TBW102"})).code == 0


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async with rocketmq(connection_buffer_bytes=64 * 1024) as broker, client_of(broker) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        names = [f"{number:08}" + "x" * 1000 for number in range(3000)]
        answers = [client.start(105, {"topic": name}) for name in names]
        [connection] = await connections(broker, 1)
        async with asyncio.timeout(DEADLINE):
            while not connection._flow.is_paused:
                await asyncio.sleep(0.001)
        assert connection._flow.outbox.unsent < 1024 * 1024
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(DEADLINE):
            assert {(await each).code for each in answers} == {ResponseCode.TOPIC_NOT_EXIST}
        assert not connection._flow.is_paused


async def test_a_client_that_does_not_read_is_told_nothing(broker: AsyncBroker) -> None:
    async with client_of(broker) as one, client_of(broker) as two:
        assert (await one.beat("one", group("g", t="*"))).code == 0
        [connection] = [
            each for each in await connections(broker, 2) if each.server.clients._connections.get(each)
        ]
        connection._flow.outbox.is_congested = True
        sent = connection._flow.outbox._size
        assert (await two.beat("two", group("g", t="*"))).code == 0
        assert connection._flow.outbox._size == sent
        connection.resume_writing()
        connection._opaque = (1 << 31) - 2
        for _ in range(2):
            assert (await two.beat("two", group("g", t="*", u="*"))).code == 0
            assert (await two.beat("two", group("g", t="*"))).code == 0
        pushed = [(await one.pushed.get()).opaque for _ in range(4)]
        assert pushed[-3:] == [(1 << 31) - 1, 1, 2]


async def test_a_stop_answers_what_is_in_flight() -> None:
    async with rocketmq() as broker:
        client = await RemotingClient.open(broker.address("rocketmq"))
        real, stopping = broker.app.broker.create_topics, asyncio.Event()

        async def slow(topics: Any) -> Any:
            await stopping.wait()
            return await real(topics)

        broker.app.broker.create_topics = slow  # type: ignore[assignment, method-assign]
        sends = [client.start(310, client.send_fields("new"), b"x") for _ in range(50)]
        [connection] = await connections(broker, 1)
        async with asyncio.timeout(DEADLINE):
            while connection._calls < 50:
                await asyncio.sleep(0.001)
        finish = connection.finish

        def finished() -> None:
            finish()
            asyncio.get_running_loop().call_later(0.02, stopping.set)

        connection.finish = finished  # type: ignore[method-assign]
    assert [(await each).code for each in sends] == [0] * 50
    await client.ended()
    await client.close()


async def test_a_connection_leaves_nothing_behind(broker: AsyncBroker) -> None:
    gc.collect()
    gc.disable()
    try:
        client = await RemotingClient.open(broker.address("rocketmq"))
        assert (await client.beat("one", group("group", t="*"))).code == 0
        assert (await client.send("t", b"x")).code == 0
        assert (await client.pull("t", sysFlag=0)).code == 0
        client.start(11, client.pull_fields("t", 1, wait_ms=30_000))
        await client.request(30, {"topic": "t", "queueId": 0})
        [connection] = map(weakref.ref, await connections(broker, 1))
        await client.close()
        async with asyncio.timeout(DEADLINE):
            while connection() is not None:
                await asyncio.sleep(0.001)
    finally:
        gc.enable()


async def test_a_listener_with_ipv6() -> None:
    async with AsyncBroker(rocketmq=Address("::1", 0)) as broker, client_of(broker) as client:
        port = Address.parse(broker.address("rocketmq")).port
        [found] = decode_route((await client.request(105, {"topic": "TBW102"})).body).brokers
        assert found.addresses == {0: f"[::1]:{port}"}
        answer = await client.send("t", b"x")
        assert parse_message_id(answer.fields["msgId"]).host == Host(address="::1", port=port)
        [message] = await client.messages("t")
        assert message.message_id == answer.fields["msgId"]
        host, own_port, *_ = client.writer.get_extra_info("sockname")
        assert unpack_host(message.born_host) == Host(address=host, port=own_port)
        assert message.system_flags == 16 | 32
        fields: dict[str, str | int] = {"offset": message.position, "group": "g", "originTopic": "t"}
        assert (await client.request(36, fields)).code == 0


async def test_an_address_that_is_advertised() -> None:
    advertised = Address("mq.example.com", 9876)
    async with rocketmq(rocketmq_advertised=advertised) as broker, client_of(broker) as client:
        [found] = decode_route((await client.request(105, {"topic": "TBW102"})).body).brokers
        assert found.addresses == {0: "mq.example.com:9876"}
        answer = await client.send("t", b"x")
        [message] = await client.messages("t")
        assert message.message_id == answer.fields["msgId"]


async def test_metrics(broker: AsyncBroker, client: RemotingClient) -> None:
    for _ in range(3):
        await client.send("t", b"hello")
    client.oneway(310, client.send_fields("t"), b"hello")
    await client.send("a b", b"x")
    await client.messages("t")
    await client.request(999)
    found = await scrape(broker)
    sends = {"protocol": "rocketmq", "api": "send_message_v2"}
    assert found.value("posthouse_requests_total", **sends) == 5
    assert found.value("posthouse_request_errors_total", **sends) == 1
    assert found.value("posthouse_request_duration_seconds_count", **sends) == 5
    assert found.value("posthouse_requests_total", protocol="rocketmq", api="pull_message") == 1
    assert found.value("posthouse_request_errors_total", protocol="rocketmq", api="unknown") == 1
    assert found.value("posthouse_topic_records_in_total", topic="t") == 4
    assert found.value("posthouse_topic_records_out_total", topic="t") == 4
    assert found.value("posthouse_topic_bytes_out_total", topic="t") == 20


async def test_an_error_of_the_broker_itself(
    broker: AsyncBroker,
    client: RemotingClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has the traceback, and the client an answer; the control of `no_tracebacks`."""
    monkeypatch.setattr(type(broker.app.broker), "bounds", lambda *_: 1 / 0)
    await client.send("t", b"x")
    answer = await client.request(30, {"topic": "t", "queueId": 0})
    assert (answer.code, answer.remark) == (1, "the broker failed; its log says why")
    answer = await client.pull("t")
    assert answer.code == 1
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 2 and all(each.exc_info for each in errors)
    caplog.clear()


async def test_a_bad_frame_behind_requests_that_are_not_answered_yet(
    broker: AsyncBroker, client: RemotingClient
) -> None:
    """Their answers come while the connection is being closed, and change nothing."""
    assert (await client.send("t", bytes(100_000))).code == 0
    for _ in range(20):
        client.start(RequestCode.PULL_MESSAGE, client.pull_fields("t"))
        client.start(RequestCode.SEND_MESSAGE_V2, client.send_fields("t"), b"x")
        client.start(RequestCode.SEND_MESSAGE_V2, client.send_fields("new"), b"x")
    client.writer.write(frame(b"[]"))
    await client.ended()
    await connections(broker, 0)
    async with client_of(broker) as other:
        assert (await other.request(105, {"topic": "t"})).code == 0


async def test_silent_clients_are_forgotten(broker: AsyncBroker, client: RemotingClient) -> None:
    """Their connections look at that, every now and then."""
    assert (await client.beat("one", group("g", t="*"))).code == 0
    [connection] = await connections(broker, 1)
    server = connection.server
    assert not connection.tick()
    assert server.clients.members("g") == ["one"]
    now = broker.app.broker.monotonic()
    server.clients._monotonic = lambda: now + 121
    server._swept = now - 11
    assert not connection.tick()
    assert server.clients.members("g") == []
    assert server._swept >= now


@pytest.mark.parametrize("is_idle", [True, False])
async def test_a_slow_sender_is_closed(broker: AsyncBroker, client: RemotingClient, is_idle: bool) -> None:
    if not is_idle:
        client.writer.write(json_frame()[:-1])
    [connection] = await connections(broker, 1)
    async with asyncio.timeout(DEADLINE):
        while not is_idle and not connection._decoder.held:
            await asyncio.sleep(0.001)
    assert any(connection.tick() for _ in range(SLOW_SECONDS + 1)) is not is_idle
