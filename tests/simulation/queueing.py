"""Publishers that wait for confirms, and consumers that acknowledge, one by one or in transactions."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from pamqp.commands import Basic, Confirm, Tx

from tests.checker.history import Ack, Deliver, Drained, Outcome, Publish
from tests.simulation.amqp_client import DEFAULT_VHOST, FANOUT, LOCAL, AmqpClient, value_of
from tests.simulation.kafka_wire import Lost
from tests.simulation.producing import PAUSE
from tests.simulation.recorder import Recorder
from tests.wire.amqp import Content


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Where queues are found."""

    vhost: str = DEFAULT_VHOST
    host: Callable[[], str] = lambda: LOCAL
    """Is called for each connection: it may be that of another broker."""

    def client(self) -> AmqpClient:
        return AmqpClient(self.host(), self.vhost)


HERE = QueuePlace()


class Publisher:
    def __init__(
        self, recorder: Recorder, random: Random, queues: list[str], place: QueuePlace = HERE
    ) -> None:
        self._place = place
        self.recorder = recorder
        self.random = random
        self.queues = queues
        self.process = recorder.process()
        self._client: AmqpClient | None = None
        self._tag = 0

    async def publish(self) -> None:
        """A few messages, and wait for their confirms: without, nobody knows what became of them."""
        client = await self._connect()
        unconfirmed: dict[int, list[Publish]] = {}
        for _ in range(self.random.randrange(1, 6)):
            self._tag += 1
            unconfirmed[self._tag] = self._send(client)
        try:
            while unconfirmed:
                got = await client.receive()
                if isinstance(got, Basic.Ack | Basic.Nack):
                    self._confirmed(unconfirmed, got)
        except (Lost, TimeoutError):
            self.disconnect()
            raise Lost("not confirmed") from None
        finally:
            for publishes in unconfirmed.values():
                for each in publishes:
                    each.completed = self.recorder.now

    def _send(self, client: AmqpClient) -> list[Publish]:
        value = self.recorder.value()
        if self.random.random() < 0.3:
            queues = self.queues
            client.publish(FANOUT, "", value)
        else:
            queues = [self.random.choice(self.queues)]
            client.publish("", queues[0], value)
        now = self.recorder.now
        publishes = [Publish(self.process, now, 2**62, queue, value, Outcome.UNKNOWN) for queue in queues]
        self.recorder.history.extend(publishes)
        return publishes

    def _confirmed(self, unconfirmed: dict[int, list[Publish]], got: Basic.Ack | Basic.Nack) -> None:
        tags = [
            tag for tag in unconfirmed if tag == got.delivery_tag or (got.multiple and tag < got.delivery_tag)
        ]
        for tag in tags:
            for each in unconfirmed.pop(tag):
                each.completed = self.recorder.now
                # A nack says that it was not stored for sure, and not that it was not for sure.
                each.outcome = Outcome.OK if isinstance(got, Basic.Ack) else Outcome.UNKNOWN

    async def _connect(self) -> AmqpClient:
        if self._client is None:
            client = await self._place.client().open()
            self._client = client
            self._tag = 0
            try:
                await client.declare(self.queues)
                await client.call(Confirm.Select(), Confirm.SelectOk)
            except Lost:
                self.disconnect()
                raise
        return self._client

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class QueueConsumer:
    """One life of a consumer: a connection, some messages, and an end that may be abrupt."""

    def __init__(self, recorder: Recorder, random: Random, queue: str, place: QueuePlace = HERE) -> None:
        self._place = place
        self.recorder = recorder
        self.random = random
        self.queue = queue
        self.process = recorder.process()

    async def live(self) -> None:
        client = await self._place.client().open()
        try:
            in_transactions = self.random.random() < 0.5
            if in_transactions:
                await client.call(Tx.Select(), Tx.SelectOk)
            await client.call(Basic.Qos(prefetch_count=self.random.choice((1, 3, 20))), Basic.QosOk)
            tag = f"consumer {self.process}"
            await client.call(Basic.Consume(queue=self.queue, consumer_tag=tag), Basic.ConsumeOk)
            for _ in range(self.random.choice((3, 20))):
                messages = await self._take(client)
                if self.recorder.is_over:
                    return
                await self._settle(client, messages, in_transactions=in_transactions)
        finally:
            client.close()

    async def _take(self, client: AmqpClient) -> list[Content]:
        """What has come, at least one message if there is one soon."""
        messages, client.arrived = client.arrived, []
        for message in messages:
            self._delivered(message)
        try:
            while len(messages) < self.random.choice((1, 1, 5)):
                got = await client.receive(0.3)
                if isinstance(got, Content):
                    self._delivered(got)
                    messages.append(got)
        except TimeoutError:
            pass  # the queue is empty
        return messages

    def _delivered(self, message: Content) -> None:
        self.recorder.history.append(
            Deliver(
                self.process,
                self.recorder.now,
                self.queue,
                value_of(message),
                message.method.redelivered,
            )
        )

    async def _settle(self, client: AmqpClient, messages: list[Content], *, in_transactions: bool) -> None:
        acks = []
        for message in messages:
            now = self.recorder.now
            client.send(Basic.Ack(delivery_tag=message.method.delivery_tag))
            ack = Ack(self.process, now, now, self.queue, value_of(message), Outcome.UNKNOWN)
            acks.append(ack)
            self.recorder.history.append(ack)
        if acks and in_transactions:
            await client.call(Tx.Commit(), Tx.CommitOk)
            for ack in acks:
                ack.completed = self.recorder.now
                ack.outcome = Outcome.OK


async def publish(publisher: Publisher, rounds: int) -> None:
    while rounds > 0 and not publisher.recorder.is_over:
        try:
            await publisher.publish()
            rounds -= 1
        except Lost:
            await asyncio.sleep(PAUSE)
        await asyncio.sleep(PAUSE * publisher.recorder.pace * publisher.random.random())
    publisher.disconnect()


async def consume_queue(consumer: QueueConsumer) -> None:
    while not consumer.recorder.is_over:
        try:
            await consumer.live()
        except (Lost, TimeoutError):
            await asyncio.sleep(PAUSE)


async def drain(
    recorder: Recorder, queue: str, place: QueuePlace = HERE, values: list[int] | None = None
) -> None:
    """For the end, when everything works and nobody else consumes. `values` are those that an attempt has got
    before it failed."""
    client = await place.client().open()
    values = [] if values is None else values
    while (value := await client.get(queue)) is not None:
        values.append(value)
    recorder.history.append(Drained(queue, values))
    client.close()
