"""pamqp as the oracle, in both directions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base, commands, frame, heartbeat

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.events import ACK, METHOD, PUBLISH
from tests.protocols.amqp.codec.amqp_cases import (
    COMMANDS,
    FRAME_MAX,
    commands_of,
    comparable,
    content_in,
    described,
    few,
    method,
    opened,
    properties,
    publish,
    short_texts,
    with_our_times,
)

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated")

# Handled by fast paths, which have events of their own.
PLAIN = [kind for kind in COMMANDS if kind not in (commands.Basic.Publish, commands.Basic.Ack)]
channels = st.integers(1, 0xFFFF)
tags = st.integers(0, (1 << 63) - 1)
bodies = st.binary(max_size=300) | st.integers(0, 3 * FRAME_MAX).map(bytes)


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
def test_methods_that_pamqp_wrote(kind: type[base.Frame]) -> None:
    @few(20)
    @given(commands_of(kind), channels)
    def check(command: base.Frame, channel: int) -> None:
        (event,) = opened(frame_max=1 << 20).feed(method(command, channel))
        assert comparable(event) == (METHOD, channel, *described(command))

    check()


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.name)
def test_methods_that_pamqp_reads(kind: type[base.Frame]) -> None:
    @few(20)
    @given(commands_of(kind), channels)
    def check(command: base.Frame, channel: int) -> None:
        expected = described(command)
        for name, value in command:
            setattr(command, name, with_our_times(value))
        encoded = encode.method(channel, command)
        size, found, read = frame.unmarshal(encoded)
        assert (size, found) == (len(encoded), channel)
        assert isinstance(read, base.Frame)
        assert described(read) == expected

    check()


@st.composite
def published(draw: st.DrawFn) -> tuple[bytes, tuple[Any, ...]]:
    body = draw(bodies)
    raw = draw(properties).marshal()
    exchange, key, mandatory, channel = (
        draw(short_texts),
        draw(short_texts),
        draw(st.booleans()),
        draw(channels),
    )
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=3)))
    edges = [0, *cuts, len(body)]
    cuts = sorted({*cuts, *(at for start in edges for at in range(start, len(body), FRAME_MAX))})
    data = publish(body, raw, exchange=exchange, key=key, mandatory=mandatory, channel=channel, cuts=cuts)
    return data, (PUBLISH, channel, exchange.encode(), key.encode(), int(mandatory), raw, body)


@few(150)
@given(st.lists(published(), max_size=4), st.integers(1, 5000))
def test_publishes_that_pamqp_wrote(messages: list[tuple[bytes, tuple[Any, ...]]], size: int) -> None:
    data = b"".join(encoded for encoded, _ in messages)
    decoder = opened()
    events = [event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])]
    assert events == [event for _, event in messages]


@few(50)
@given(tags, st.booleans(), channels)
def test_acks(tag: int, multiple: bool, channel: int) -> None:
    expected = method(commands.Basic.Ack(tag, multiple), channel)
    assert encode.ack(channel, tag, multiple) == expected
    assert opened().feed(expected) == [(ACK, channel, tag, multiple)]


@few(50)
@given(tags, st.booleans(), channels)
def test_nacks(tag: int, multiple: bool, channel: int) -> None:
    command = commands.Basic.Nack(tag, multiple, False)
    assert encode.nack(channel, tag, multiple) == method(command, channel)


@few(150)
@given(channels, short_texts, tags, st.booleans(), short_texts, short_texts, properties, bodies)
def test_deliver(
    channel: int,
    consumer: str,
    tag: int,
    redelivered: bool,
    exchange: str,
    key: str,
    values: commands.Basic.Properties,
    body: bytes,
) -> None:
    raw = values.marshal()
    names = consumer.encode(), exchange.encode(), key.encode()
    data = encode.deliver(channel, names[0], tag, redelivered, *names[1:], raw, body, FRAME_MAX)
    found, command, head, whole, largest = content_in(data)
    assert (found, whole) == (channel, body)
    assert described(command) == described(commands.Basic.Deliver(consumer, tag, redelivered, exchange, key))
    assert head.properties.marshal() == raw
    assert largest <= FRAME_MAX - 8


@few(100)
@given(
    channels, tags, st.booleans(), short_texts, short_texts, st.integers(0, 0xFFFFFFFF), properties, bodies
)
def test_get_ok(
    channel: int,
    tag: int,
    redelivered: bool,
    exchange: str,
    key: str,
    count: int,
    values: commands.Basic.Properties,
    body: bytes,
) -> None:
    raw = values.marshal()
    data = encode.get_ok(
        channel, tag, redelivered, exchange.encode(), key.encode(), count, raw, body, FRAME_MAX
    )
    found, command, head, whole, largest = content_in(data)
    assert (found, whole) == (channel, body)
    assert described(command) == described(commands.Basic.GetOk(tag, redelivered, exchange, key, count))
    assert head.properties.marshal() == raw
    assert largest <= FRAME_MAX - 8


@few(100)
@given(channels, st.integers(0, 0xFFFF), short_texts, short_texts, short_texts, properties, bodies)
def test_returned(
    channel: int,
    code: int,
    text: str,
    exchange: str,
    key: str,
    values: commands.Basic.Properties,
    body: bytes,
) -> None:
    raw = values.marshal()
    data = encode.returned(channel, code, text, exchange.encode(), key.encode(), raw, body, FRAME_MAX)
    found, command, head, whole, largest = content_in(data)
    assert (found, whole) == (channel, body)
    assert described(command) == described(commands.Basic.Return(code, text, exchange, key))
    assert head.properties.marshal() == raw
    assert largest <= FRAME_MAX - 8


@few(50)
@given(channels, short_texts, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF))
def test_declare_ok(channel: int, queue: str, messages: int, consumers: int) -> None:
    expected = commands.Queue.DeclareOk(queue, messages, consumers)
    assert encode.declare_ok(channel, queue, messages, consumers) == method(expected, channel)


def test_heartbeat() -> None:
    assert heartbeat.Heartbeat().marshal() == encode.HEARTBEAT
