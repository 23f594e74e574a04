"""An AMQP client in the world: one connection with one channel, gone for good when anything goes wrong."""

from typing import Any, Self

from pamqp.commands import Basic, Channel, Connection, Exchange, Queue

from tests.protocols.amqp.wire import Closed
from tests.simulation.amqp_wire import AmqpWire
from tests.simulation.kafka_client import SECONDS
from tests.simulation.kafka_wire import Lost
from tests.simulation.machine import AMQP_PORT
from tests.wire.amqp import Content

CHANNEL = 1
LOCAL = "127.0.0.1"
FANOUT = "everywhere"
DEFAULT_VHOST = "/"


class AmqpClient:
    def __init__(self, host: str = LOCAL, vhost: str = DEFAULT_VHOST) -> None:
        self._wire = AmqpWire(AMQP_PORT, host)
        self._vhost = vhost
        self.arrived: list[Content] = []
        """Messages that came while an answer was waited for."""

    async def open(self) -> Self:
        try:
            await self._wire.open(vhost=self._vhost)
        except (OSError, EOFError, AssertionError, Closed) as error:
            self.close()
            raise Lost(repr(error)) from None
        await self.call(Channel.Open(), Channel.OpenOk)
        return self

    def close(self) -> None:
        """Without a word."""
        self._wire.disconnect()

    def send(self, method: Any) -> None:
        self._wire.send(CHANNEL, method)

    def publish(self, exchange: str, key: str, value: int) -> None:
        self._wire.publish(CHANNEL, exchange, key, b"%d " % value + bytes(value * 5 % 70), delivery_mode=2)

    async def receive(self, seconds: float = SECONDS) -> Any:
        """The next frame, or a message. Raises TimeoutError where none comes, Lost when none ever will."""
        try:
            _, got = await self._wire.receive(seconds)
        except TimeoutError:
            raise
        except (OSError, EOFError) as error:
            raise Lost(repr(error)) from None
        if isinstance(got, Channel.Close | Connection.Close):
            raise Lost(got.reply_text)
        return got

    async def call(self, method: Any, *answers: type[Any]) -> Any:
        """Send and wait for one of these answers."""
        self.send(method)
        while True:
            try:
                got = await self.receive()
            except TimeoutError:
                raise Lost("no answer") from None
            if isinstance(got, answers) or (isinstance(got, Content) and isinstance(got.method, answers)):
                return got
            if isinstance(got, Content):
                self.arrived.append(got)

    async def declare(self, queues: list[str]) -> None:
        for queue in queues:
            await self.call(Queue.Declare(queue=queue, durable=True), Queue.DeclareOk)
        await self.call(
            Exchange.Declare(exchange=FANOUT, exchange_type="fanout", durable=True), Exchange.DeclareOk
        )
        for queue in queues:
            await self.call(Queue.Bind(queue=queue, exchange=FANOUT), Queue.BindOk)

    async def get(self, queue: str) -> int | None:
        """The next message, which is then settled; None where there is none."""
        got = await self.call(Basic.Get(queue=queue, no_ack=True), Basic.GetOk, Basic.GetEmpty)
        return value_of(got) if isinstance(got, Content) else None


def value_of(message: Content) -> int:
    return int(message.body.split(b" ")[0])
