"""Publishers with confirms and consumers with acknowledgements, of pika."""

from collections.abc import Callable
from functools import partial

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.checker.history import Ack, Deliver, Drained, Outcome, Publish, Subscribe
from tests.crash.loads import Load, Recorder

EXCHANGE = "orders"
QUEUES = ("billing", "shipping")
"""Every message goes to each of them."""
PUBLISHERS = 3
_LOST = (AMQPError, OSError)


def connect(address: str) -> pika.BlockingConnection:
    host, port = address.split(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=5))


def declare(address: str) -> None:
    connection = connect(address)
    channel = connection.channel()
    channel.exchange_declare(EXCHANGE, "fanout", durable=True)
    for queue in QUEUES:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, EXCHANGE)
    connection.close()


class QueueLoad:
    """Publishers confirm every message; one consumer settles in transactions, the other by plain
    acknowledgements. Both give some messages back."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def start(self, address: str) -> Load:
        load = Load(self._recorder, _LOST)
        clients: list[Callable[[], None]] = [partial(self._publish, address) for _ in range(PUBLISHERS)]
        clients += [partial(self._settle, address, QUEUES[0]), partial(self._acknowledge, address, QUEUES[1])]
        load.start(clients)
        return load

    def _publish(self, address: str) -> None:
        channel = connect(address).channel()
        channel.confirm_delivery()
        process = self._recorder.number()
        while True:
            value, invoked, outcome = self._recorder.number(), self._recorder.now(), Outcome.UNKNOWN
            try:
                channel.basic_publish(
                    EXCHANGE, "", str(value).encode(), pika.BasicProperties(delivery_mode=2)
                )
                outcome = Outcome.OK
            finally:
                now = self._recorder.now()
                self._recorder.add(
                    *(Publish(process, invoked, now, queue, value, outcome) for queue in QUEUES)
                )

    def _settle(self, address: str, queue: str) -> None:
        """In transactions: once one is committed, what it acknowledges may not come back."""
        channel, process = self._subscribe(address, queue)
        channel.tx_select()
        for method, _, body in channel.consume(queue):
            assert method is not None and body is not None
            value = self._deliver(process, queue, body, redelivered=method.redelivered)
            if _gives_back(method.delivery_tag, method.redelivered):
                channel.basic_nack(method.delivery_tag, requeue=True)
                channel.tx_commit()
                continue
            invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
            try:
                channel.basic_ack(method.delivery_tag)
                channel.tx_commit()
                outcome = Outcome.OK
            finally:
                self._recorder.add(Ack(process, invoked, self._recorder.now(), queue, value, outcome))

    def _acknowledge(self, address: str, queue: str) -> None:
        """And hear nothing of it: what was acknowledged last may come back."""
        channel, process = self._subscribe(address, queue)
        for method, _, body in channel.consume(queue):
            assert method is not None and body is not None
            value = self._deliver(process, queue, body, redelivered=method.redelivered)
            if _gives_back(method.delivery_tag, method.redelivered):
                channel.basic_nack(method.delivery_tag, requeue=True)
                continue
            now = self._recorder.now()
            self._recorder.add(Ack(process, now, now, queue, value, Outcome.UNKNOWN))
            channel.basic_ack(method.delivery_tag)

    def _subscribe(self, address: str, queue: str) -> tuple[BlockingChannel, int]:
        process = self._recorder.number()
        self._recorder.add(Subscribe(process, self._recorder.now(), queue))
        channel = connect(address).channel()
        channel.basic_qos(prefetch_count=20)
        return channel, process

    def _deliver(self, process: int, queue: str, body: bytes, *, redelivered: bool) -> int:
        value = int(body)
        self._recorder.add(Deliver(process, self._recorder.now(), queue, value, redelivered))
        return value

    def drain(self, address: str) -> None:
        """Take everything that is left."""
        connection = connect(address)
        channel = connection.channel()
        process = self._recorder.number()
        for queue in QUEUES:
            self._recorder.add(Subscribe(process, self._recorder.now(), queue))
            values: list[int] = []
            while True:
                method, _, body = channel.basic_get(queue)
                if method is None or body is None:
                    break
                values.append(self._deliver(process, queue, body, redelivered=method.redelivered))
                channel.basic_ack(method.delivery_tag)
            self._recorder.add(Drained(queue, values))
        connection.close()


def _gives_back(tag: int, redelivered: bool) -> bool:
    return tag % 7 == 3 and not redelivered
