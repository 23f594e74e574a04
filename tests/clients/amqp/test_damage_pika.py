"""Queues whose messages or references are damaged: consumers get the others, the log names what is lost."""

from pathlib import Path

import pytest

from tests.clients.amqp.blocking import count, get_all, publish, take, wait
from tests.clients.amqp.test_restart import connected
from tests.stored import IS_SHARED

pytestmark = [
    pytest.mark.usefixtures("posthouse_only"),
    pytest.mark.skipif(IS_SHARED, reason="damages the files of a data directory"),
]

BODIES = [b"message-%d" % number for number in range(4)]


def filled(data: Path) -> list[Path]:
    """A data directory with a queue, and its segments: that of the messages, and that of the references."""
    with connected(data) as channel:
        channel.queue_declare("mails", durable=True)
        for body in BODIES:
            publish(channel, "mails", body)
    files = sorted(data.glob("topics/*/0-*.log"), key=lambda path: BODIES[0] not in path.read_bytes())
    assert len(files) == 2
    return files


@pytest.mark.parametrize("which", [0, 1], ids=["messages", "references"])
def test_the_last_message_is_lost_and_the_others_are_not(
    tmp_path: Path, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    victim = filled(tmp_path)[which]
    content = victim.read_bytes()
    victim.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    with connected(tmp_path) as channel:
        assert [delivery.body for delivery in take(channel, "mails", 3)] == BODIES[:3]
        wait(lambda: count(channel, "mails") == 0, what="the lost message to be given up")
        publish(channel, "mails", b"later")
        assert get_all(channel, "mails") == [b"later"]
    assert 'queue "mails" (vhost "/"): messages 3 to 3 are lost' in caplog.text
    assert "Consumers skip these offsets" in caplog.text


@pytest.mark.parametrize("which", [0, 1], ids=["messages", "references"])
def test_messages_in_a_file_that_was_moved_come_when_it_is_back(
    tmp_path: Path, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = filled(tmp_path)
    messages, other = files[which], files[1 - which]
    aside = tmp_path / "aside"
    messages.rename(aside)
    messages.write_bytes(other.read_bytes())
    with connected(tmp_path) as channel:
        publish(channel, "mails", b"later")
        assert [delivery.body for delivery in take(channel, "mails", 1)] == [b"later"]
        assert count(channel, "mails") == len(BODIES)
    assert 'queue "mails" (vhost "/"): messages 0 to 3 cannot be read and stay in the queue' in caplog.text
    aside.rename(messages)
    with connected(tmp_path) as channel:
        assert [delivery.body for delivery in take(channel, "mails", 4)] == BODIES
