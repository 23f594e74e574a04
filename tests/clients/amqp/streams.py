"""What tests with streams do over and over, by pika's blocking connection."""

from collections.abc import Callable
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.clients.amqp.blocking import Delivery, Inbox, wait

STREAM = {"x-queue-type": "stream"}
HEADER = "x-stream-offset"


def declare(channel: Any, name: str, **arguments: Any) -> Any:
    """With arguments in Python's spelling: x_max_age."""
    return channel.queue_declare(
        name, durable=True, arguments=STREAM | {key.replace("_", "-"): arguments[key] for key in arguments}
    ).method


class Reader(Inbox):
    """A consumer on a channel of its own, with as much prefetch as it says."""

    def __init__(
        self, connection: Any, name: str, start: Any = None, *, prefetch: int = 100, ack: bool = True
    ) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        super().__init__(self.channel, name, ack=ack, arguments=None if start is None else {HEADER: start})

    @property
    def offsets(self) -> list[int]:
        return [offset_of(delivery) for delivery in self]

    def has(self, count: int) -> "Reader":
        wait(lambda: len(self) >= count, self.connection, what=f"{count} messages of the stream")
        return self


def offset_of(delivery: Delivery) -> int:
    return int(delivery.properties.headers[HEADER])


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def refusal(attempt: Callable[[], object]) -> tuple[int, str]:
    """Code and text of the channel's or the connection's end."""
    with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker)) as caught:
        attempt()
    return caught.value.reply_code, caught.value.reply_text.partition(" - ")[2]
