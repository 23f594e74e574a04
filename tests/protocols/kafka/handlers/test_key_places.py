"""KeyPlaces: where the index has the records of a name."""

from pathlib import Path

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.kafka.codec.own.key_places import (
    MESSAGE_ID,
    KeyPlacesAnswer,
    KeyPlacesRange,
    KeyPlacesRequest,
    KeyPlacesResponse,
    KeyPlacesSpan,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handlers import key_places
from posthouse.records.builder import BatchBuilder
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.scene import connected, permit, secured
from tests.protocols.kafka.wire import Wire

WHOLE = [KeyPlacesRange(partition=0, first=0, end=6)]


async def filled(wire: Wire, broker: AsyncBroker) -> bytes:
    """Keys a b a c, of which two records have ids. Behind them, not indexed: b a."""
    topic = await wire.create_topic("t", index_keys="true")
    await wire.produce(topic, keyed(b"a", b"b", b"a", b"c"))
    await broker.app.broker.key_index.stop()
    await broker.app.broker.key_index.catch_up()
    await wire.produce(topic, keyed(b"b", b"a"))
    return topic


def keyed(*keys: bytes) -> bytearray:
    builder = BatchBuilder()
    for key in keys:
        builder.add(key, b"value", [("UNIQ_KEY", b"id-" + key)], 1)
    return builder.build()


async def asked(wire: Wire, topic: bytes, **fields: object) -> KeyPlacesResponse:
    given = {"topic_id": topic, "name": b"a", "ranges": WHOLE} | fields
    return await wire.ask(KeyPlacesRequest(**given), KeyPlacesResponse)  # type: ignore[arg-type]


def answer(next: int, *spans: tuple[int, int]) -> KeyPlacesAnswer:
    return KeyPlacesAnswer(next=next, spans=[KeyPlacesSpan(first=first, end=end) for first, end in spans])


async def test_what_is_indexed_and_what_is_not(
    wire: Wire, broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await filled(wire, broker)
    every = await asked(wire, topic)
    assert (every.error_code, every.ranges) == (0, [answer(6, (0, 1), (2, 3), (4, 6))])
    assert (await asked(wire, topic, gap=1)).ranges == [answer(6, (0, 6))]
    by_id = await asked(wire, topic, kind=MESSAGE_ID, name=b"id-c")
    assert by_id.ranges == [answer(6, (3, 6))]
    assert (await asked(wire, topic, kind=MESSAGE_ID)).ranges == [answer(6, (4, 6))]
    part = [KeyPlacesRange(partition=0, first=1, end=4), KeyPlacesRange(partition=1, first=0, end=4)]
    assert (await asked(wire, topic, ranges=part)).ranges == [
        answer(4, (2, 3)),
        KeyPlacesAnswer(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    monkeypatch.setattr(key_places, "MOST_SPANS", 1)
    assert (await asked(wire, topic, ranges=WHOLE * 2)).ranges == [answer(2, (0, 1)), answer(0)]


async def test_what_is_refused(wire: Wire) -> None:
    plain = await wire.create_topic("plain")
    without = await asked(wire, plain)
    assert without.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert without.error_message == "topic 'plain' has no key index: its index.keys is false"
    assert (await asked(wire, bytes(range(16)))).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await asked(wire, plain, gap=-1)).error_code == ErrorCode.INVALID_REQUEST
    assert (await asked(wire, plain, kind=2)).error_code == ErrorCode.INVALID_REQUEST
    assert (await asked(wire, plain, ranges=WHOLE * 1001)).error_code == ErrorCode.INVALID_REQUEST


async def test_it_needs_the_permission_to_read(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        async with connected(broker, "admin") as wire:
            topic = await wire.create_topic("t", index_keys="true")
        await permit(broker.app.broker, "reader", Operation.DESCRIBE, Kind.TOPIC, "t")
        async with connected(broker, "reader") as wire:
            assert (await asked(wire, topic)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await permit(broker.app.broker, "reader", Operation.READ, Kind.TOPIC, "t")
            assert (await asked(wire, topic)).error_code == 0
