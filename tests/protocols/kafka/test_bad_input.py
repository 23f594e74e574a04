"""Whatever arrives, the worst is that its sender loses the connection, with one line in the log."""

import logging
import struct

import pytest

from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.protocols.kafka.codec.headers import encode_request_header
from posthouse.testing import AsyncBroker
from tests.alarms import alarms
from tests.protocols.kafka.wire import Wire, batch
from tests.wire.kafka import framed

METADATA, PRODUCE, INIT_PRODUCER_ID = 3, 0, 22

BAD = {
    "negative length": struct.pack(">i", -5),
    "oversize": struct.pack(">i", 2**31 - 1),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "empty frame": framed(b""),
    "short header": framed(b"\0\3\0"),
    "unknown api": framed(struct.pack(">hhih", 9999, 0, 1, -1)),
    "negative api": framed(struct.pack(">hhih", -1, 0, 1, -1)),
    "api without a handler": framed(encode_request_header(INIT_PRODUCER_ID, 1, 1, None) + bytes(20)),
    "version too high": framed(struct.pack(">hhih", METADATA, 99, 1, -1)),
    "version too low": framed(struct.pack(">hhih", PRODUCE, 0, 1, -1)),
    "body cut short": framed(encode_request_header(METADATA, 8, 1, None) + b"\0\0\0\1\0\5ab"),
    "huge count": framed(encode_request_header(METADATA, 8, 1, None) + b"\x7f\xff\xff\xff"),
    "trailing bytes": framed(encode_request_header(METADATA, 0, 1, None) + b"\0\0\0\0more"),
    "garbage body": framed(encode_request_header(PRODUCE, 9, 1, "x") + b"\xff" * 50),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_the_connection_closes_with_one_line(
    bad: bytes, broker: AsyncBroker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await wire.create_topic()
    with caplog.at_level(logging.INFO):
        async with Wire(broker.kafka) as sender:
            sender.writer.write(bad)
            assert await sender.reader.read() == b""
            peer = sender.writer.get_extra_info("sockname")
    [record] = alarms(caplog)
    assert record.levelname == "WARNING"
    assert f"{peer[0]}:{peer[1]}" in record.getMessage()
    assert (await wire.produce(topic, batch(b"still here"))).error_code == 0


async def test_what_came_before_is_answered(broker: AsyncBroker) -> None:
    async with Wire(broker.kafka) as wire:
        good = wire.send(MetadataRequest())
        wire.writer.write(BAD["unknown api"])
        assert isinstance(await wire.receive(good), MetadataResponse)
        assert await wire.reader.read() == b""


@pytest.mark.parametrize("begun", [b"\0\0", b"\0\0\0\x20abc", b"\0\1\0\0" + bytes(40_000)])
async def test_half_a_frame_then_close(
    begun: bytes, broker: AsyncBroker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    async with Wire(broker.kafka) as sender:
        sender.writer.write(begun)
        await sender.writer.drain()
        sender.writer.write_eof()
        assert await sender.reader.read() == b""
    await wire.create_topic()
    [record] = alarms(caplog)
    assert "in the middle of a request" in record.getMessage()


async def test_a_bug_in_a_handler_is_an_error_response(
    broker: AsyncBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await wire.create_topic()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(broker.app.broker, "append", broken)
    assert (await wire.produce(topic, batch(b"x"))).error_code == -1
    [record] = alarms(caplog)
    assert record.exc_info
    monkeypatch.undo()
    assert (await wire.produce(topic, batch(b"x"))).error_code == 0
