"""Kills under a stream: no confirmed message is lost, and an offset means the same message for ever."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pika
from pika.exceptions import AMQPError

from tests.crash.queue_load import connect
from tests.crash.served import broker

STREAM = {"x-queue-type": "stream"}
ROUNDS = 3
PUBLISHERS = 2
SECONDS = 30


class History:
    """What clients have seen, over all lives of the broker."""

    def __init__(self) -> None:
        self.confirmed: list[set[int]] = [set() for _ in range(PUBLISHERS)]
        self.next = [0] * PUBLISHERS
        self.seen: dict[int, bytes] = {}
        self.changed = threading.Condition()

    def publish(self, address: str, number: int) -> None:
        """By the exchange or straight to the stream, in turn."""
        channel = connect(address).channel()
        channel.confirm_delivery()
        while True:
            value, self.next[number] = self.next[number], self.next[number] + 1
            body = b"%d %d" % (number, value)
            channel.basic_publish("x" if value % 2 else "", "s", body, pika.BasicProperties(delivery_mode=2))
            with self.changed:
                self.confirmed[number].add(value)
                self.changed.notify_all()

    def read(self, address: str) -> None:
        """On from where it was."""
        channel = connect(address).channel()
        channel.basic_qos(prefetch_count=20)
        start = max(self.seen, default=-1) + 1
        for method, properties, body in channel.consume("s", arguments={"x-stream-offset": start}):
            assert method is not None and body is not None
            with self.changed:
                offset = int(properties.headers["x-stream-offset"])
                assert offset == max(self.seen, default=-1) + 1, "neither gaps nor repetitions"
                self.seen[offset] = body
                self.changed.notify_all()
            channel.basic_ack(method.delivery_tag)

    def wait_for(self, seen: int, confirmed: int) -> None:
        def enough() -> bool:
            return len(self.seen) >= seen and sum(map(len, self.confirmed)) >= confirmed

        with self.changed:
            assert self.changed.wait_for(enough, SECONDS), f"{len(self.seen)} messages were read"


def until_lost(errors: list[BaseException], work: Callable[[], None]) -> None:
    try:
        with suppress(AMQPError, OSError):
            work()
    except BaseException as error:  # noqa: BLE001 - told to the test
        errors.append(error)


def everything(address: str) -> list[bytes]:
    """All that is in the stream, with its offsets checked."""
    connection = connect(address)
    channel: Any = connection.channel()
    count = channel.queue_declare("s", passive=True).method.message_count
    channel.basic_qos(prefetch_count=500)
    found: list[bytes] = []
    for method, properties, body in channel.consume(
        "s", arguments={"x-stream-offset": "first"}, inactivity_timeout=SECONDS
    ):
        assert method is not None, f"{len(found)} of {count} messages came"
        assert properties.headers["x-stream-offset"] == len(found)
        found.append(body)
        if len(found) == count:
            break
        channel.basic_ack(method.delivery_tag)
    connection.close()
    return found


def test_kills_lose_nothing_and_offsets_stay(tmp_path: Path) -> None:
    random = Random(4711)
    history = History()
    errors: list[BaseException] = []
    for life in range(ROUNDS):
        with broker(tmp_path) as process:
            if life == 0:
                channel = connect(process.amqp).channel()
                channel.exchange_declare("x", "fanout", durable=True)
                channel.queue_declare("s", durable=True, arguments=STREAM)
                channel.queue_bind("s", "x")
            clients: list[Callable[[], None]] = [
                lambda number=number: history.publish(process.amqp, number)  # type: ignore[misc]
                for number in range(PUBLISHERS)
            ]
            clients.append(lambda: history.read(process.amqp))
            threads = [threading.Thread(target=until_lost, args=(errors, client)) for client in clients]
            for thread in threads:
                thread.start()
            more = random.randrange(1, 150)
            history.wait_for(len(history.seen) + more, sum(map(len, history.confirmed)) + more)
            process.kill()
            for thread in threads:
                thread.join(SECONDS)
    assert errors == []
    with broker(tmp_path) as process:
        found = everything(process.amqp)
    assert {offset: found[offset] for offset in history.seen} == history.seen
    for number in range(PUBLISHERS):
        values = [int(body.split()[1]) for body in found if body.startswith(b"%d " % number)]
        assert values == sorted(set(values)), "in the order of publishing, and once"
        assert history.confirmed[number] <= set(values)
