"""What tests with pika's blocking connection do over and over."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pika import BasicProperties

SECONDS = 60.0
"""How long anything may take that must happen."""


class Delivery(NamedTuple):
    method: Any
    properties: Any
    body: bytes


def publish(channel: Any, queue: str, *bodies: bytes, **properties: Any) -> None:
    """Straight to a queue."""
    for body in bodies:
        channel.basic_publish("", queue, body, BasicProperties(**properties), mandatory=True)


def get(channel: Any, queue: str) -> Delivery | None:
    """What basic.get gives now, acknowledged."""
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    return None if method is None else Delivery(method, properties, body)


def get_all(channel: Any, queue: str) -> list[bytes]:
    """The bodies of all that is in the queue now."""
    bodies = []
    while (found := get(channel, queue)) is not None:
        bodies.append(found.body)
    return bodies


def take(channel: Any, queue: str, count: int, *, ack: bool = True) -> list[Delivery]:
    """Consumes until that many have come, and stops."""
    taken: list[Delivery] = []
    for method, properties, body in channel.consume(queue, auto_ack=ack, inactivity_timeout=SECONDS):
        assert method is not None, f"{len(taken)} of {count} messages came"
        taken.append(Delivery(method, properties, body))
        if len(taken) == count:
            break
    if ack:
        channel.cancel()
    return taken


class Inbox(list[Delivery]):
    """What a consumer was handed, in order."""

    def __init__(self, channel: Any, queue: str, *, ack: bool = False, **options: Any) -> None:
        super().__init__()
        self._acks = ack
        self.tag: str = channel.basic_consume(queue, self._receive, **options)

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self]

    def _receive(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.append(Delivery(method, properties, body))
        if self._acks:
            channel.basic_ack(method.delivery_tag)


def wait(condition: Callable[[], object], *connections: Any, what: str = "it") -> None:
    """Handles what the broker sends over these connections until the condition holds."""
    until = time.monotonic() + SECONDS
    pause = 0.05 if len(connections) == 1 else 0.01  # ends early when something has come
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen in {SECONDS} s"
        for connection in connections:
            connection.process_data_events(time_limit=pause)


def settle(channel: Any, queue: str) -> None:
    """A round trip to the queue. What it hands out by mistake, and at once, has come after that."""
    count(channel, queue)
    channel.connection.process_data_events(time_limit=0)


def count(channel: Any, queue: str) -> int:
    """How many messages are ready."""
    ready: int = channel.queue_declare(queue, passive=True).method.message_count
    return ready
