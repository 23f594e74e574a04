"""A client that keeps what is delivered to it while it waits for something else."""

from typing import Any

from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue

from tests.protocols.amqp.wire import Closed, Wire
from tests.wire.amqp import Content

_ROUND_TRIPS = 5


class Client(Wire):
    """Channel 1 publishes with confirms; tests open others for what they look at."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.delivered: list[Content] = []
        self._published = 0
        self._confirmed = 0

    async def start(self, channels: int = 2, **options: Any) -> "Client":
        await self.open(**options)
        for number in range(1, channels + 1):
            await self.channel(number)
        await self.call(1, Confirm.Select())
        return self

    async def ask(self, channel: int, method: "base.Frame") -> Any:
        """The answer to a method. Raises Closed."""
        self.send(channel, method)
        wanted = tuple(method.valid_responses)
        while True:
            where, got = await self.receive()
            answer: Any = got
            if isinstance(got, Content) and got.method.name in wanted:
                return got
            if isinstance(got, Channel.Close | Connection.Close):
                self.send(where, Channel.CloseOk() if where else Connection.CloseOk())
                raise Closed(where, answer.reply_code, answer.reply_text, answer.class_id, answer.method_id)
            if isinstance(got, base.Frame) and got.name in wanted:
                return got
            self._keep(got)

    def _keep(self, got: Any) -> None:
        if isinstance(got, Content):
            self.delivered.append(got)
        elif isinstance(got, Basic.Ack):
            self._confirmed = max(self._confirmed, got.delivery_tag)
        else:
            raise AssertionError(f"unexpected {got!r}")

    async def send_all(self, key: str, count: int, exchange: str = "", **properties: Any) -> None:
        """Publish messages `0`, `1`, ... and wait until they are confirmed."""
        for number in range(count):
            self.publish(1, exchange, key, str(number).encode(), **properties)
        self._published += count
        while self._confirmed < self._published:
            self._keep((await self.receive())[1])

    async def deliveries(self, count: int) -> list[Content]:
        """Wait for so many, and take them."""
        while len(self.delivered) < count:
            self._keep((await self.receive())[1])
        taken, self.delivered = self.delivered[:count], self.delivered[count:]
        return taken

    async def nothing_more(self) -> None:
        """Asserts that no delivery is on its way: answers that come later would be behind it."""
        await self.round_trips()
        assert not self.delivered, [(each.method.consumer_tag, each.body) for each in self.delivered]

    async def round_trips(self) -> None:
        for _ in range(_ROUND_TRIPS):
            await self.ask(1, Basic.Qos(0, 0, False))

    async def count(self, queue: str, channel: int = 1) -> int:
        return int((await self.ask(channel, Queue.Declare(queue=queue, passive=True))).message_count)

    async def consume(self, channel: int, queue: str, tag: str, **options: Any) -> None:
        await self.ask(channel, Basic.Consume(queue=queue, consumer_tag=tag, **options))
