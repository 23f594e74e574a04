"""What both refuse, by code, words and method, and what both take."""

import asyncio
import struct
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue

from tests.protocols.amqp.as_rabbitmq.client import Client
from tests.protocols.amqp.as_rabbitmq.conftest import OTHER, Connect
from tests.protocols.amqp.wire import PROTOCOL_HEADER, Closed, Wire

REPLY_TO = "amq.rabbitmq.reply-to"

NUMBERS = {
    "byte": b"b\xfe",
    "unsignedbyte": b"B\xfe",
    "short": b"s\xff\xfe",
    "unsignedshort": b"u\xff\xfe",
    "signedint": b"I\xff\xff\xff\xfe",
    "unsignedint": b"i\xff\xff\xff\xfe",
    "long": b"l" + bytes(8),
    "float": b"f" + struct.pack(">f", 1.5),
    "double": b"d" + struct.pack(">d", 1.5),
}
OTHERS = {
    "bool": b"t\1",
    "timestamp": b"T" + bytes(8),
    "decimal": b"D\2\0\0\0\5",
    "array": b"A" + bytes(4),
    "table": b"F" + bytes(4),
    "binary": b"x\0\0\0\1a",
    "void": b"V",
}


def method(class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return struct.pack(">HH", class_id, method_id) + arguments


def short(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def table(**values: bytes) -> bytes:
    entries = b"".join(short(name.replace("_", "-")) + value for name, value in values.items())
    return struct.pack(">I", len(entries)) + entries


async def refused(client: Wire) -> tuple[int, int, str, int, int]:
    """Channel, code, words, and the method that is to blame."""
    where, got = await client.receive()
    assert isinstance(got, Channel.Close | Connection.Close), got
    client.send(where, Channel.CloseOk() if where else Connection.CloseOk())
    close: Any = got
    return where, close.reply_code, close.reply_text, close.class_id, close.method_id


class TestTypesByName:
    @pytest.mark.parametrize("kind", [*NUMBERS, *OTHERS])
    async def test_of_a_dead_letter_exchange(self, client: Client, name: str, kind: str) -> None:
        arguments = table(x_dead_letter_exchange={**NUMBERS, **OTHERS}[kind])
        client.raw(1, 1, method(50, 10, bytes(2) + short(name) + b"\4" + arguments))
        assert await refused(client) == (
            1,
            406,
            f"PRECONDITION_FAILED - invalid type '{kind}' for arg 'x-dead-letter-exchange' in queue "
            f"'{name}' in vhost '/'",
            50,
            10,
        )

    @pytest.mark.parametrize("kind", [kind for kind in NUMBERS if kind not in ("float", "double")])
    async def test_of_what_is_there(self, client: Client, name: str, kind: str) -> None:
        value = {**NUMBERS, "byte": b"b\5", "short": b"s\0\5", "signedint": b"I\0\0\0\5"}[kind]
        arguments = table(x_max_length=value)
        client.raw(1, 1, method(50, 10, bytes(2) + short(name) + b"\4" + arguments))
        await client.expect(1, Queue.DeclareOk)
        with pytest.raises(Closed) as caught:
            await client.ask(1, Queue.Declare(queue=name, exclusive=True))
        assert caught.value.text.endswith(f"of type '{kind}'")


CUT = {
    "queue.declare": (50, 10, b"\0\0\5ab", "<<0,0,5,97,98>>"),
    "queue.declare and more": (50, 10, bytes(3) + b"\4" + bytes(4) + b"zz", "<<0,0,0,4,0,0,0,0,122,122>>"),
    "basic.consume": (60, 20, b"\0\0\1", "<<0,0,1>>"),
    "basic.ack": (60, 80, b"\0\0", "<<0,0>>"),
    "basic.ack and more": (60, 80, bytes(10), "<<0,0,0,0,0,0,0,0,0,0>>"),
    "basic.publish": (60, 40, b"\0\0\3a", "<<0,0,3,97>>"),
    "basic.publish and more": (60, 40, bytes(5) + b"zz", "<<0,0,0,0,0,122,122>>"),
    "basic.recover": (60, 110, b"", "<<>>"),
}


@pytest.mark.parametrize("cut", CUT)
async def test_arguments_that_are_cut_off(client: Client, cut: str) -> None:
    class_id, method_id, arguments, shown = CUT[cut]
    client.raw(1, 1, method(class_id, method_id, arguments))
    text = f"FRAME_ERROR - cannot decode {shown}"
    assert await refused(client) == (0, 501, text, class_id, method_id)


PUBLISH = (1, method(60, 40, bytes(3) + short("k") + b"\0"))
NO_HEADER = "expected content header for class 60, got non content header frame instead"
UNEXPECTED = {
    "a body": ([(3, b"x")], "expected method frame, got non method frame instead", False),
    "a header": (
        [(2, struct.pack(">HHQH", 60, 0, 1, 0))],
        "expected method frame, got non method frame instead",
        False,
    ),
    "a method in a message": ([PUBLISH, (1, method(60, 10, bytes(7)))], NO_HEADER, True),
    "another publish": ([PUBLISH, PUBLISH], NO_HEADER, True),
    "a body without a header": ([PUBLISH, (3, b"x")], NO_HEADER, True),
    "two headers": (
        [PUBLISH, *[(2, struct.pack(">HHQH", 60, 0, 1, 0))] * 2],
        "expected content body, got non content body frame instead",
        True,
    ),
    "a header of another class": (
        [PUBLISH, (2, struct.pack(">HHQH", 50, 0, 1, 0))],
        "expected content header for class 60, got one for class 50 instead",
        True,
    ),
}


@pytest.mark.parametrize("case", UNEXPECTED)
async def test_frames_that_are_not_due(client: Client, case: str) -> None:
    frames, text, in_publish = UNEXPECTED[case]
    for kind, payload in frames:
        client.raw(kind, 1, payload)
    blamed = (60, 40) if in_publish else (0, 0)
    assert await refused(client) == (0, 505, f"UNEXPECTED_FRAME - {text}", *blamed)


async def test_an_access_ticket(client: Client) -> None:
    client.raw(1, 1, method(30, 10, short("/data") + b"\x1f"))
    expected = struct.pack(">BHI", 1, 1, 6) + method(30, 11, b"\0\1") + b"\xce"
    assert await asyncio.wait_for(client.reader.readexactly(len(expected)), 10) == expected


async def test_deliveries_cannot_be_stopped(client: Client) -> None:
    assert (await client.ask(1, Channel.Flow(True))).active
    client.send(1, Channel.Flow(False))
    assert await refused(client) == (0, 540, "NOT_IMPLEMENTED - active=false", 20, 20)


async def test_the_header_of_amqp_0_9(address: tuple[str, int]) -> None:
    async with await Wire(*address).connect() as wire:
        wire.writer.write(b"AMQP\x01\x01\x00\x09")
        start: Any = await wire.expect(0, Connection.Start)
        assert (start.version_major, start.version_minor) == (0, 9)


@pytest.mark.parametrize(
    "header", [b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x00\x09\x00", b"AMQP\x01\x01\x09\x00"]
)
async def test_headers_of_other_protocols(address: tuple[str, int], header: bytes) -> None:
    async with await Wire(*address).connect() as wire:
        wire.writer.write(header)
        try:
            assert await asyncio.wait_for(wire.reader.readexactly(8), 10) == PROTOCOL_HEADER
        except ConnectionResetError:
            if not OTHER:  # RabbitMQ closes so fast that the answer may be lost
                raise


class TestTheQueueOfDirectReplies:
    @pytest.mark.parametrize(
        "declare",
        [
            Queue.Declare(queue=REPLY_TO, passive=True),
            Queue.Declare(queue=REPLY_TO),
            Queue.Declare(queue=REPLY_TO, exclusive=True),
            Queue.Declare(queue=REPLY_TO, durable=True, arguments={"x-message-ttl": 1}),
        ],
        ids=["passive", "plain", "exclusive", "durable"],
    )
    async def test_is_there(self, client: Client, declare: Queue.Declare) -> None:
        declared = await client.ask(1, declare)
        assert (declared.queue, declared.message_count, declared.consumer_count) == (REPLY_TO, 0, 1)
        await client.consume(1, REPLY_TO, "c", no_ack=True)
        assert (await client.ask(1, declare)).consumer_count == 1

    async def test_an_address_that_no_client_has(self, client: Client) -> None:
        name = f"{REPLY_TO}.nobody"
        with pytest.raises(Closed, match="404"):
            await client.ask(1, Queue.Declare(queue=name, passive=True))

    @pytest.mark.parametrize(
        ("asked", "code"),
        [
            (Queue.Bind(queue=REPLY_TO, exchange="amq.direct"), 404),
            (Queue.Purge(queue=REPLY_TO), 404),
            (Basic.Get(queue=REPLY_TO), 404),
            (Queue.Unbind(queue=REPLY_TO, exchange="amq.direct"), None),
            (Queue.Delete(queue=REPLY_TO), None),
        ],
    )
    async def test_is_no_queue_otherwise(self, client: Client, asked: "base.Frame", code: int | None) -> None:
        if code is None:
            await client.ask(1, asked)
            return
        with pytest.raises(Closed) as caught:
            await client.ask(1, asked)
        assert caught.value.code == code


async def test_keys_that_are_no_strings_do_not_count(connect: Connect, name: str) -> None:
    client = await connect()
    for header in ("CC", "BCC"):
        queue = f"{name}-{header}"
        await client.ask(1, Queue.Declare(queue=queue, exclusive=True))
        mixed: Any = {header: [1, queue, None]}
        await client.send_all("nowhere", 1, headers=mixed)
        assert await client.count(queue) == 1


async def test_an_alternate_exchange_of_void(client: Client, name: str) -> None:
    void: Any = {"alternate-exchange": None}
    with pytest.raises(Closed) as caught:
        await client.ask(1, Exchange.Declare(exchange=name, arguments=void))
    assert "invalid type 'void' for arg 'alternate-exchange'" in caught.value.text
