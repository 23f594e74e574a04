"""What a client has sent behind connection.open, however its bytes are cut."""

import pytest
from pamqp import frame
from pamqp.commands import Channel, Connection, Queue

from posthouse.protocols.amqp.codec.behind_open import BehindOpen
from posthouse.protocols.amqp.codec.framing import PROTOCOL
from tests.protocols.amqp.wire import HEARTBEAT

BEFORE = (
    PROTOCOL
    + frame.marshal(Connection.StartOk({"product": "\x00\x0a\x00\x28" * 9}, "PLAIN", "\0u\0p"), 0)
    + frame.marshal(Connection.TuneOk(1, 4096, 1), 0)
    + HEARTBEAT
    + frame.marshal(Connection.Open("/elsewhere"), 1)  # on a channel, where it means nothing
)
OPEN = frame.marshal(Connection.Open("/"), 0)
BEHIND = (
    frame.marshal(Channel.Open(), 1)
    + frame.marshal(Queue.Declare(queue="q"), 1)
    + HEARTBEAT
    + frame.marshal(Connection.Open("/"), 0)
)


@pytest.mark.parametrize("size", [*range(1, 20), 10_000])
def test_chunks_of_any_size(size: int) -> None:
    sent = BEFORE + OPEN + BEHIND
    behind = BehindOpen()
    for start in range(0, len(sent), size):
        behind.feed(sent[start : start + size])
    assert bytes(behind.kept) == BEHIND


def test_nothing_is_kept_before() -> None:
    behind = BehindOpen()
    behind.feed(BEFORE + HEARTBEAT * 1000 + OPEN[:8])
    assert not behind.kept
    assert behind._start == OPEN[:8]
    behind.feed(OPEN[8:])
    assert not behind.kept
    behind.feed(b"\x01")
    assert behind.kept == b"\x01"
