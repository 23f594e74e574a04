"""AMQP's stream, methods, tables and properties."""

from collections.abc import Iterator
from contextlib import suppress

from pamqp import commands

from posthouse.protocols.amqp.codec.commands import decode_command, encode_command
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.errors import FrameError
from posthouse.protocols.amqp.codec.events import METHOD, Event
from posthouse.protocols.amqp.codec.framing import END, FRAME, PROTOCOL
from posthouse.protocols.amqp.codec.tables import (
    MalformedTable,
    Timestamp,
    check_table,
    decode_table,
    encode_table,
    table_entries,
)
from posthouse.protocols.amqp.mapping.attributes import read_attributes
from posthouse.protocols.amqp.mapping.caches import DeliveryCache
from posthouse.protocols.amqp.mapping.envelopes import envelope_of
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.properties import parse, spans
from posthouse.protocols.amqp.mapping.readable import DEATHS, EXCHANGE, PROPERTIES
from posthouse.records.header_section import encode_section
from tests.fuzz.target import Target

FRAME_MAX = 4096
MAX_BODY = 8192
_DEATHS = b'[{"queue":"q","reason":"expired","count":1,"exchange":"","keys":["k"],"time":1}]'


def stream(data: bytes) -> None:
    """However a stream is cut, the same comes out of it, and no more is held than arrived."""
    if not data:
        return
    assert _events(data[1:], data[0] + 1) == _events(data[1:], len(data))


def _events(data: bytes, piece: int) -> tuple[list[object], list[int]]:
    decoder = Decoder(frame_max=FRAME_MAX, max_body=MAX_BODY)
    decoder.feed(PROTOCOL)
    events: list[Event] = []
    faults: list[int] = []
    for start in range(0, len(data), piece):
        try:
            events += decoder.feed(data[start : start + piece])
        except FrameError as error:
            events += error.events
            faults.append(error.code)
        assert decoder.held <= len(data)
    return [_comparable(event) for event in events], faults


def _comparable(event: Event) -> object:
    return encode_command(event[1], event[2]) if event[0] == METHOD else event


def _stream_seeds() -> Iterator[bytes]:
    from tests.protocols.amqp.codec.amqp_cases import content_body, content_header, method, publish, raw

    sent = publish(b"hello", b"\x90\x00\x01a\x02", exchange="amq.topic", key="some.key", mandatory=True)
    ack = method(commands.Basic.Ack(7, True))
    yield b"\xff" + sent * 2 + ack
    yield b"\x00" + sent + raw(8, 0, b"") + publish(b"", key="k")
    yield b"\x05" + publish(b"in parts", key="k", cuts=(2, 5))
    declare = method(commands.Queue.Declare(queue="q", durable=True, arguments={"x-max-length": 5}))
    yield b"\x10" + declare + method(commands.Basic.Consume(queue="q")) + method(commands.Tx.Select())
    yield b"\x20" + method(commands.Channel.Open()) + content_header(5) + content_body(b"late")
    yield b"\x30" + method(commands.Channel.Close(200, "bye", 0, 0)) + method(commands.Channel.CloseOk())


def command(data: bytes) -> None:
    if len(data) < 4:
        return
    try:
        decoded = decode_command(data)
    except FrameError:
        return
    encoded = encode_command(1, decoded)
    again = decode_command(encoded[FRAME.size : -len(END)])
    assert encode_command(1, again) == encoded


def _command_seeds() -> Iterator[bytes]:
    from tests.protocols.amqp.codec.amqp_cases import method

    for each in (
        commands.Connection.StartOk({"product": "x", "capabilities": {"a": True}}, "PLAIN", "\0guest\0guest"),
        commands.Connection.TuneOk(2047, 131072, 60),
        commands.Connection.Open("/"),
        commands.Connection.Close(200, "bye", 0, 0),
        commands.Channel.Open(),
        commands.Exchange.Declare(exchange="e", exchange_type="topic", arguments={"alternate-exchange": "f"}),
        commands.Exchange.Bind(destination="a", source="b", routing_key="k", arguments={}),
        commands.Queue.Declare(
            queue="q", durable=True, arguments={"x-expires": 1000, "list": [1, "a", None]}
        ),
        commands.Queue.Bind(queue="q", exchange="e", routing_key="k", arguments={"x-match": "all"}),
        commands.Queue.Delete(queue="q", if_empty=True),
        commands.Basic.Qos(0, 10, False),
        commands.Basic.Consume(queue="q", consumer_tag="c", no_ack=True, arguments={"x-priority": 5}),
        commands.Basic.Publish(exchange="e", routing_key="k"),
        commands.Basic.Get(queue="q"),
        commands.Basic.Nack(3, True, False),
        commands.Confirm.Select(),
        commands.Tx.Commit(),
    ):
        yield method(each)[FRAME.size : -1]


def table(data: bytes) -> None:
    try:
        decoded, end = decode_table(data)
    except MalformedTable:
        return
    assert end <= len(data)
    assert check_table(data, 0) == end
    assert {name.decode() for name, _ in table_entries(data, 0)} == set(decoded)
    with suppress(MalformedTable):  # what was not UTF-8 may be longer now
        encoded = encode_table(decoded)
        again, _ = decode_table(encoded)
        assert encode_table(again) == encoded


def _tables() -> Iterator[bytes]:
    yield encode_table({})
    yield encode_table({"s": "text", "i": 5, "d": 1.5, "b": True, "n": None, "t": Timestamp(1_700_000_000)})
    yield encode_table({"x": b"\xff\xfe", "list": [1, [2, "a"], {"deep": {"deeper": []}}]})
    yield b"\0\0\0\x17" + b"\x01aD\x02\0\0\0\x05" + b"\x01bI\0\0\0\x05" + b"\x01ts\0\x01" + b"\x01uV"
    yield b"\0\0\0\x0f" + b"\x01bb\x05" + b"\x01uB\xff" + b"\x01ff\0\0\0\0"


def properties(data: bytes) -> None:
    with suppress(PropertyError):
        parse(data)
    with suppress(PropertyError):
        envelope = envelope_of(b"exchange", data)
        read_attributes(envelope.headers)
    read_attributes(data)
    for section in (
        data,
        encode_section([(EXCHANGE, b"e"), (PROPERTIES, data)]),
        encode_section([(EXCHANGE, b"e"), (PROPERTIES, data), (DEATHS, _DEATHS)]),
        encode_section([(EXCHANGE, b"e"), (PROPERTIES, b"\x01\x00\x03100"), (DEATHS, data)]),
    ):
        read_attributes(section)
        delivery = DeliveryCache(lambda topic: b"").of(section, "topic", 5000)
        spans(delivery.properties)


def _property_seeds() -> Iterator[bytes]:
    yield b"\0\0"
    yield b"\x90\x00\x0atext/plain\x02"
    every = [b"\x01" + bytes([65 + number]) for number in range(14)]
    for table_ in _tables():
        yield b"\x20\x00" + table_
    every[2], every[3], every[4], every[9] = (
        encode_table({"CC": ["a"], "BCC": ["b"]}),
        b"\x02",
        b"\x05",
        bytes(8),
    )
    yield b"\xff\xfc" + b"".join(every)
    yield b"\x21\x00" + encode_table({"x-delay": 500}) + b"\x031000"
    yield b'[{"queue":"q","reason":"expired","count":1,"exchange":"","keys":["k"],"time":1,"rekeyed":true}]'


TARGETS = (
    Target(name="amqp-stream", run=stream, seeds=_stream_seeds),
    Target(name="amqp-method", run=command, seeds=_command_seeds),
    Target(name="amqp-table", run=table, seeds=_tables),
    Target(name="amqp-properties", run=properties, seeds=_property_seeds),
)
