"""Records that stream producers write, in queues."""

from posthouse.broker.appending import Produced
from posthouse.broker.queues.queue import Queue
from posthouse.broker.routing.definitions import ExchangeKind
from posthouse.broker.topics import NewTopic
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from tests.broker.queues.rig import Rig, running


def batch(
    *records: tuple[bytes | None, bytes, list[tuple[str, bytes]]], codec: Codec = Codec.NONE
) -> memoryview:
    builder = BatchBuilder(codec)
    for key, value, headers in records:
        builder.add(key, value, headers, 1_700_000_000_000)
    return memoryview(builder.build())


async def produce(rig: Rig, name: str, data: memoryview, partition: int = 0) -> None:
    results = await rig.broker.append([Produced(rig.broker.topic(name), partition, data)]).wait()
    assert all(not isinstance(each, Exception) for each in results), results


async def values(queue: Queue) -> list[bytes]:
    found = []
    while (message := await queue.get()) is not None:
        found.append(message.value or b"")
        queue.ack([message])
    return found


async def test_a_topic_feeds_the_queue_of_its_name() -> None:
    async with running() as rig:
        await rig.broker.create_topics([NewTopic(name="orders", partitions=3)])
        await produce(rig, "orders", batch((None, b"before", [])))
        queue = await rig.queue("orders")
        for partition in range(3):
            await produce(rig, "orders", batch((b"k", b"%d" % partition, [])), partition)
        await rig.publish(b"by queue", key=b"orders")
        assert sorted(await values(queue)) == [b"0", b"1", b"2", b"by queue"]


async def test_a_topic_feeds_the_exchange_of_its_name() -> None:
    async with running() as rig:
        await rig.exchange("orders", ExchangeKind.TOPIC)
        queue = await rig.queue("orders")
        german = await rig.queue("german")
        await rig.bind("orders", "german", b"*.de")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        records = [
            (b"x.de", b"1", []),
            (b"x.fr", b"2", []),
            (b"x.fr", b"3", [("posthouse.routing-key", b"y.de")]),
            (None, b"4", []),
        ]
        for codec in (Codec.NONE, Codec.ZSTD):
            await produce(rig, "orders", batch(*records, codec=codec))
        assert await values(german) == [b"1", b"3"] * 2
        assert await values(queue) == [], "published to the exchange, not sent to the queue"


async def test_headers_of_records_are_matched() -> None:
    async with running() as rig:
        from posthouse.broker.routing.definitions import Binding

        await rig.exchange("orders", ExchangeKind.HEADERS)
        queue = await rig.queue("q")
        await rig.namespace.bind(
            Binding(source="orders", destination="q", arguments={"x-match": "all", "land": "de"})
        )
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        await produce(rig, "orders", batch((None, b"1", [("land", b"de")]), (None, b"2", [("land", b"fr")])))
        assert await values(queue) == [b"1"]


async def test_a_repeated_batch_comes_once() -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        for _ in range(3):
            builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
            builder.add(b"k", b"once", timestamp=1)
            await produce(rig, "orders", memoryview(builder.build()))
        assert queue.message_count == 1
        assert await values(queue) == [b"once"]


async def test_what_queues_publish_is_in_the_stream() -> None:
    async with running() as rig:
        await rig.queue("orders")
        await rig.publish(b"a", b"b", key=b"orders")
        topic = rig.broker.topic("orders")
        assert rig.broker.bounds(topic, 0).end == 2
        assert topic.config.retention_consumed
