"""Counting by arithmetic comes to what pamqp has encoded, however the bytes arrive."""

import socket
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from bench.queues.scanning import Confirms, Deliveries, OutOfStep


def ack(tag: int, multiple: bool = False) -> bytes:
    return frame.marshal(commands.Basic.Ack(tag, multiple), 1)


def delivery(tag: int, content: bytes, consumer: str = "c0000") -> bytes:
    properties = header.ContentHeader(0, len(content), commands.Basic.Properties(delivery_mode=2))
    deliver = commands.Basic.Deliver(consumer, tag, False, "exchange", "key")
    parts = [frame.marshal(each, 1) for each in (deliver, properties, body.ContentBody(content))]
    return b"".join(parts)


def pieces(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """The same bytes, cut into pieces of these lengths, and the rest."""
    for cut in cuts:
        if data[:cut]:
            yield data[:cut]
        data = data[cut:]
    if data:
        yield data


CUTS = st.lists(st.integers(1, 400), max_size=60)


@given(
    orders=st.permutations(range(1, 41)),
    multiples=st.sets(st.integers(1, 40)),
    cuts=st.lists(st.integers(1, 90)),
)
def test_confirms_in_any_order(orders: list[int], multiples: set[int], cuts: list[int]) -> None:
    confirms = Confirms()
    known: set[int] = set()
    data = b""
    for tag in orders:
        is_multiple = tag in multiples
        data += ack(tag, is_multiple)
        known |= set(range(1, tag + 1)) if is_multiple else {tag}
    half = len(data) // 42 * 21
    for piece in pieces(data[:half], cuts):
        confirms.feed(piece)
    first: set[int] = set()
    for tag in orders[: half // 21]:
        first |= set(range(1, tag + 1)) if tag in multiples else {tag}
    assert confirms.count == len(first)
    for piece in pieces(data[half:], cuts):
        confirms.feed(piece)
    assert confirms.count == len(known) == 40


def test_a_refused_message_is_no_confirm() -> None:
    with pytest.raises(OutOfStep, match="refused a message"):
        Confirms().feed(frame.marshal(commands.Basic.Nack(1), 1))


def test_a_close_is_no_confirm() -> None:
    close = frame.marshal(commands.Channel.Close(404, "NOT_FOUND - no exchange", 60, 40), 1)
    with pytest.raises(OutOfStep, match="404, NOT_FOUND - no exchange"):
        Confirms().feed(close)


def counted(deliveries: Deliveries, data: bytes, cuts: Sequence[int]) -> list[int]:
    """What the bodies start with, of everything that the scanner took."""
    near, far = socket.socketpair()
    starts: list[int] = []
    with near, far:
        for piece in pieces(data, cuts):
            near.sendall(piece)
            deliveries.receive(far)
            whole = deliveries.take()
            starts += deliveries.bodies_start_with(whole)
            deliveries.drop(whole)
    return starts


@given(count=st.integers(1, 30), size=st.integers(8, 200), cuts=CUTS)
def test_deliveries_in_any_pieces(count: int, size: int, cuts: list[int]) -> None:
    bodies = [number.to_bytes(8, "big") + bytes(size - 8) for number in range(1000, 1000 + count)]
    data = b"".join(delivery(tag, content) for tag, content in enumerate(bodies, start=1))
    deliveries = Deliveries()
    assert counted(deliveries, data, cuts) == list(range(1000, 1000 + count))
    assert deliveries.count == count
    assert deliveries.size * count == len(data)


def test_what_came_before_counts_too() -> None:
    deliveries = Deliveries(delivery(1, bytes(100)) + delivery(2, bytes(100))[:50])
    deliveries.drop(deliveries.take())
    assert counted(deliveries, delivery(2, bytes(100))[50:] + delivery(3, bytes(100)), []) == [0, 0]
    assert deliveries.count == 3


def test_an_empty_body_is_a_message() -> None:
    deliveries = Deliveries(delivery(1, b"")[: -len(frame.marshal(body.ContentBody(b""), 1))])
    assert deliveries.take() == 1


def test_more_messages_than_the_buffer_holds() -> None:
    deliveries = Deliveries(room=1000)
    data = b"".join(delivery(tag, bytes(300)) for tag in range(1, 51))
    counted(deliveries, data, [200] * (len(data) // 200))
    assert deliveries.count == 50


def test_a_gap_in_the_numbers_is_noticed() -> None:
    data = delivery(1, bytes(20)) + delivery(3, bytes(20))
    with pytest.raises(OutOfStep, match="delivery 3 where 2 was due"):
        counted(Deliveries(), data, [])


def test_a_message_of_another_size_is_noticed() -> None:
    data = delivery(1, bytes(20)) + delivery(2, bytes(21)) + delivery(3, bytes(20))
    with pytest.raises(OutOfStep):
        counted(Deliveries(), data, [])


@pytest.mark.parametrize("earlier", [b"", delivery(1, bytes(20))])
def test_a_close_is_no_delivery(earlier: bytes) -> None:
    close = frame.marshal(commands.Channel.Close(404, "NOT_FOUND - no queue " + "x" * 100, 60, 20), 1)
    with pytest.raises(OutOfStep, match="404, NOT_FOUND - no queue"):
        counted(Deliveries(), earlier + close, [len(earlier)] if earlier else [])
