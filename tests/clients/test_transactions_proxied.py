"""confluent-kafka behind a network that delays and repeats its requests.

librdkafka keeps its epoch over transactions, so that nothing in a request says which one it belongs to.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.frame_proxy import Frame, FrameProxy
from tests.stored import stored_in

PRODUCE, ADD_PARTITIONS, END = 0, 24, 26
PARTITIONS = 3


@pytest.fixture
async def proxy() -> AsyncIterator[FrameProxy]:
    async with FrameProxy() as made, AsyncBroker(**stored_in(), kafka_advertised=made.address) as broker:
        made.broker = Address.parse(broker.kafka)
        admin = AdminClient({"bootstrap.servers": str(made.address)})
        [created] = admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values()
        await asyncio.to_thread(created.result, 30)
        yield made


class Application:
    """A transactional producer, used from the event loop that the proxy runs in."""

    def __init__(self, proxy: FrameProxy, **config: Any) -> None:
        settings = {"bootstrap.servers": str(proxy.address), "transactional.id": "app", "log_level": 0}
        self._producer = Producer(settings | config)

    async def init(self) -> None:
        await asyncio.to_thread(self._producer.init_transactions, 30)

    async def write(self, value: str) -> None:
        """Begins a transaction with a record in every partition; done when all are acknowledged."""
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce("t", value.encode(), partition=partition)
        await asyncio.to_thread(self._producer.flush, 30)

    async def end(self, *, commit: bool) -> None:
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        await asyncio.to_thread(end, 30)


def read_committed(address: Address) -> list[list[str]]:
    """The values of each partition."""
    consumer = Consumer(
        {"bootstrap.servers": str(address), "group.id": "check", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        value, partition = message.value(), message.partition()
        assert isinstance(value, bytes) and partition is not None
        found[partition].append(value.decode())
    consumer.close()
    return found


class Copies:
    """Passes everything on and keeps the requests of one API."""

    def __init__(self, proxy: FrameProxy, key: int) -> None:
        self._key = key
        self.frames: list[Frame] = []
        proxy.passes = self

    def __call__(self, frame: Frame) -> bool:
        if frame.key == self._key:
            self.frames.append(frame)
        return True


async def test_an_end_that_is_repeated_does_not_end_the_next(proxy: FrameProxy) -> None:
    ends = Copies(proxy, END)
    application = Application(proxy)
    await application.init()
    await application.write("one")
    await application.end(commit=True)
    await application.write("two")
    await ends.frames[0].send_again()
    assert await asyncio.to_thread(read_committed, proxy.address) == [["one"]] * PARTITIONS
    await application.end(commit=False)
    assert await asyncio.to_thread(read_committed, proxy.address) == [["one"]] * PARTITIONS


async def test_an_end_that_was_stuck_in_a_connection_that_the_client_gave_up(proxy: FrameProxy) -> None:
    ends = Copies(proxy, END)
    application = Application(proxy)
    await application.init()
    await application.write("one")
    await application.end(commit=True)
    for link in list(proxy.links):
        link.cut_off()
    await application.write("two")
    await ends.frames[0].send_again()
    assert await asyncio.to_thread(read_committed, proxy.address) == [["one"]] * PARTITIONS
    await application.end(commit=True)
    assert await asyncio.to_thread(read_committed, proxy.address) == [["one", "two"]] * PARTITIONS


async def test_batches_that_are_repeated_in_the_next_transaction(proxy: FrameProxy) -> None:
    batches = Copies(proxy, PRODUCE)
    application = Application(proxy)
    await application.init()
    await application.write("one")
    await application.end(commit=True)
    first = list(batches.frames)
    await application.write("two")
    for frame in first:
        await frame.send_again()
    await application.end(commit=True)
    assert await asyncio.to_thread(read_committed, proxy.address) == [["one", "two"]] * PARTITIONS


class Weather:
    """Repeats some requests at once, some later, and holds some back for a while."""

    def __init__(self, proxy: FrameProxy, random: Random) -> None:
        self._random = random
        self.late: list[asyncio.Task[None]] = []
        proxy.passes = self

    def __call__(self, frame: Frame) -> bool:
        fate = self._random.random()
        if frame.key not in (PRODUCE, END, ADD_PARTITIONS) or fate > 0.5:
            return True
        self.late.append(asyncio.create_task(self._send_later(frame, cut_off=fate < 0.02)))
        return fate > 0.05  # a few are only late, not repeated

    async def _send_later(self, frame: Frame, *, cut_off: bool) -> None:
        if cut_off:
            frame.link.cut_off()
        await asyncio.sleep(self._random.choice([0, 0.01, 0.1, 0.5]))
        frame.send()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_in_bad_weather_transactions_stay_whole(proxy: FrameProxy, seed: int) -> None:
    random = Random(seed)
    weather = Weather(proxy, random)
    committed: list[str] = []
    aborted: list[str] = []
    numbers = itertools.count()
    application: Application | None = None
    while len(committed) < 25:
        value = f"transaction {next(numbers)}"
        commit = random.random() < 0.7
        try:
            if application is None:
                application = Application(proxy, **{"socket.timeout.ms": 2000})
                await application.init()
            await application.write(value)
            await application.end(commit=commit)
        except KafkaException:
            application = None  # fenced, or the outcome is not known: it goes on as a new producer
        else:
            (committed if commit else aborted).append(value)
    proxy.passes = lambda frame: True
    await asyncio.gather(*weather.late)
    await Application(proxy).init()
    partitions = await asyncio.to_thread(read_committed, proxy.address)
    assert partitions[1:] == partitions[:-1], "a transaction is whole"
    found = partitions[0]
    assert len(set(found)) == len(found), "and there once"
    assert set(committed) <= set(found)
    assert not set(aborted) & set(found)
    assert len(weather.late) > 20
