"""Publishers with confirms and consumers with acknowledgements, until the broker dies under them."""

import threading
from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.crash.queue_checker import Delivery, QueueHistory

EXCHANGE = "orders"
PUBLISHERS = 3
_LOST = (AMQPError, OSError)


def connect(address: str) -> pika.BlockingConnection:
    host, port = address.split(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=5))


def declare(address: str, queues: tuple[str, ...]) -> None:
    connection = connect(address)
    channel = connection.channel()
    channel.exchange_declare(EXCHANGE, "fanout", durable=True)
    for queue in queues:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, EXCHANGE)
    connection.close()


class QueueLoad:
    """One life of the broker. Publishers confirm every message; one consumer settles in transactions, the
    other by plain acknowledgements."""

    def __init__(self, address: str, history: QueueHistory, life: int) -> None:
        self._address = address
        self._history = history
        self._life = life
        self._changed = threading.Condition()
        self._threads = [
            *(self._thread(self._publish, number) for number in range(PUBLISHERS)),
            *(self._thread(self._consume, number) for number in range(len(history.queues))),
        ]

    def _thread(self, work: Callable[[int], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                work(number)
            except _LOST:
                return  # the broker died, which is the point

        return threading.Thread(target=run, daemon=True)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for(self, confirmed: int, settled: int) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: len(self._history.confirmed) >= confirmed and len(self._history.settled) >= settled,
                60,
            ), "the load makes no progress"

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a client hangs after the broker died"

    def _publish(self, number: int) -> None:
        channel = connect(self._address).channel()
        channel.confirm_delivery()
        publisher = f"{self._life}.{number}"
        for count in range(1_000_000):
            value = f"{publisher}:{count}"
            with self._changed:
                self._history.sent.add(value)
            channel.basic_publish(EXCHANGE, "", value.encode(), pika.BasicProperties(delivery_mode=2))
            with self._changed:
                self._history.confirmed.add(value)
                self._changed.notify_all()

    def _consume(self, number: int) -> None:
        channel = connect(self._address).channel()
        queue = self._history.queues[number]
        channel.basic_qos(prefetch_count=20)
        if number == 0:
            channel.tx_select()
        for method, _, body in channel.consume(queue):
            assert method is not None and body is not None
            value = body.decode()
            with self._changed:
                self._history.deliver(Delivery(queue, value, bool(method.redelivered)))
            if method.delivery_tag % 7 == 3 and not method.redelivered:
                channel.basic_nack(method.delivery_tag, requeue=True)
            else:
                channel.basic_ack(method.delivery_tag)
                if number == 0:
                    channel.tx_commit()
                    with self._changed:
                        self._history.settled.add((queue, value))
                        self._changed.notify_all()
                    continue
            if number == 0:
                channel.tx_commit()


def drain(address: str, history: QueueHistory) -> None:
    """Take everything that is left."""
    connection = connect(address)
    channel: BlockingChannel = connection.channel()
    for queue in history.queues:
        while True:
            method, _, body = channel.basic_get(queue)
            if method is None or body is None:
                break
            history.deliver(Delivery(queue, body.decode(), bool(method.redelivered)))
            channel.basic_ack(method.delivery_tag)
    connection.close()
