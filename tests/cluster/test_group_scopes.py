"""Groups on several brokers, with real clients, while their scopes move and brokers stop."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from posthouse.client import Client
from posthouse.node import Node
from tests.cluster.nodes import nodes
from tests.cluster.scope_moves import hurry, know_holders, move, moving

pytestmark = pytest.mark.timeout(240)

_SECONDS = 60
_RECORDS = 400
_PARTITIONS = 4


@pytest.fixture
async def made(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Node]]:
    """The first coordinates."""
    hurry(monkeypatch)
    async with nodes(url, "a", "b", "c") as running:
        await know_holders(running)
        yield running


def kafka(made: list[Node]) -> str:
    return ",".join(str(each.listeners["kafka"]) for each in made)


def _quiet(made: list[Node], **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": kafka(made), "log_level": 0, **settings}


def _create(made: list[Node], *topics: str) -> None:
    admin = AdminClient(_quiet(made))
    for each in admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in topics]).values():
        each.result(_SECONDS)


class _Filling:
    """Produces numbers all the time, so that members have work while groups move."""

    def __init__(self, made: list[Node], topic: str, count: int = _RECORDS) -> None:
        self._made = made
        self._topic = topic
        self._count = count
        self._pace = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer = Producer(_quiet(self._made, **{"enable.idempotence": True}))
        for number in range(self._count):
            producer.produce(self._topic, b"%d" % number, partition=number % _PARTITIONS)
            producer.poll(0)
            self._pace.wait(0.02)
        assert producer.flush(_SECONDS) == 0

    def finish(self) -> None:
        self._pace.set()
        self._thread.join()


def _value(message: Message) -> int:
    return int(message.value() or b"")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_go_on_while_their_group_moves(url: str, made: list[Node], protocol: str) -> None:
    """Every record is processed, and none is committed twice. Members keep their partitions, and no commit is
    refused."""
    await asyncio.to_thread(_create, made, "t")
    seen: Counter[int] = Counter()
    again: list[int] = []
    lock, stop = threading.Lock(), threading.Event()
    done: dict[int, int] = {}
    """By partition: the offset that was committed."""
    assigned: dict[Consumer, set[int]] = {}
    revoked: list[object] = []
    refused: list[KafkaException] = []

    def consume() -> None:
        settings: dict[str, Any] = {
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
        consumer = Consumer(_quiet(made, **settings))

        def note(_: Consumer, partitions: list[TopicPartition]) -> None:
            assigned[consumer] = assigned.get(consumer, set()) | {each.partition for each in partitions}

        def note_loss(_: Consumer, partitions: list[TopicPartition]) -> None:
            assigned[consumer] -= {each.partition for each in partitions}
            revoked.append(partitions)

        consumer.subscribe(["t"], on_assign=note, on_revoke=note_loss, on_lost=note_loss)
        while not stop.is_set():
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            with lock:
                seen[_value(message)] += 1
            try:
                consumer.commit(message=message, asynchronous=False)
            except KafkaException as error:
                refused.append(error)
                continue
            with lock:
                if offset < done.get(partition, 0):
                    again.append(_value(message))
                done[partition] = max(done.get(partition, 0), offset + 1)
        consumer.close()

    members = [asyncio.create_task(asyncio.to_thread(consume)) for _ in range(2)]
    try:
        async with asyncio.timeout(_SECONDS):
            while sorted(map(len, assigned.values())) != [_PARTITIONS // 2] * 2:
                await asyncio.sleep(0.1)
        revoked.clear()
        filling = _Filling(made, "t")
        await moving(url, "g", made, 6)
        assert not revoked
        await asyncio.to_thread(filling.finish)
        async with asyncio.timeout(_SECONDS):
            while len(seen) < _RECORDS:
                await asyncio.sleep(0.1)
    finally:
        stop.set()
        await asyncio.gather(*members)
    assert not again and not refused
    assert set(seen) == set(range(_RECORDS))


async def test_a_share_group_while_it_moves(url: str, made: list[Node]) -> None:
    """What a broker has confirmed to be acknowledged is not delivered again."""
    await asyncio.to_thread(_create, made, "t")

    def begin_at_the_start() -> None:
        admin = AdminClient(_quiet(made))
        earliest = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        group = ConfigResource(ResourceType.GROUP, "shares", incremental_configs=[earliest])
        admin.incremental_alter_configs([group])[group].result(_SECONDS)

    await asyncio.to_thread(begin_at_the_start)
    seen: Counter[int] = Counter()
    acknowledged: set[int] = set()
    again: list[int] = []
    lock, stop = threading.Lock(), threading.Event()

    def consume() -> None:
        consumer = ShareConsumer(_quiet(made, **{"group.id": "shares"}))
        consumer.subscribe(["t"])
        while not stop.is_set():
            messages = [each for each in consumer.poll(0.2) if each.error() is None]
            with lock:
                again.extend(_value(each) for each in messages if _value(each) in acknowledged)
                seen.update(map(_value, messages))
            confirmed = _acknowledge(consumer)
            with lock:
                acknowledged.update(_value(each) for each in messages if each.partition() in confirmed)
        consumer.close()

    members = [asyncio.create_task(asyncio.to_thread(consume)) for _ in range(2)]
    filling = _Filling(made, "t")
    try:
        await moving(url, "shares", made, 4)
        await asyncio.to_thread(filling.finish)
        async with asyncio.timeout(_SECONDS):
            while len(seen) < _RECORDS:
                await asyncio.sleep(0.1)
    finally:
        stop.set()
        await asyncio.gather(*members)
    assert set(seen) == set(range(_RECORDS))
    assert len(acknowledged) > _RECORDS // 2
    assert not again


def _acknowledge(consumer: ShareConsumer) -> set[int]:
    """What the last poll has found. Returns the partitions for which a broker has confirmed it."""
    try:
        answers = consumer.commit_sync(_SECONDS)
    except KafkaException:
        return set()  # the group moves
    return {place.partition for place, error in answers.items() if error is None}


async def test_a_transactional_processor_while_its_group_moves(url: str, made: list[Node]) -> None:
    """Read, process, write: each record comes out once, whichever broker has the group. The coordinator of
    the transactions is always the first one."""
    await asyncio.to_thread(_create, made, "in", "out")
    stop = threading.Event()

    def process() -> None:
        consumer = Consumer(
            _quiet(
                made,
                **{
                    "group.id": "processors",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "session.timeout.ms": 6000,
                    "heartbeat.interval.ms": 300,
                },
            )
        )
        consumer.subscribe(["in"])
        producer = Producer(_quiet(made, **{"transactional.id": "processor"}))
        producer.init_transactions(_SECONDS)
        while not stop.is_set():
            messages = [each for each in consumer.consume(20, 0.3) if each.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            try:
                for each in messages:
                    producer.produce("out", each.value(), partition=each.partition() or 0)
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), _SECONDS
                )
                producer.commit_transaction(_SECONDS)
            except KafkaException as error:
                assert not error.args[0].fatal(), error
                producer.abort_transaction(_SECONDS)
                _rewind(consumer)
        consumer.close()

    def _rewind(consumer: Consumer) -> None:
        """To what is committed."""
        assigned = consumer.assignment()
        if not assigned:
            return
        try:
            committed = consumer.committed(assigned, _SECONDS)
        except KafkaException:
            consumer.unsubscribe()
            consumer.subscribe(["in"])
            return
        for place in committed:
            place.offset = max(place.offset, 0)
            consumer.seek(place)

    processing = asyncio.create_task(asyncio.to_thread(process))
    filling = _Filling(made, "in")
    found: list[int] = []

    def read() -> None:
        reader = Consumer(_quiet(made, **{"group.id": "r", "isolation.level": "read_committed"}))
        reader.assign([TopicPartition("out", index, 0) for index in range(_PARTITIONS)])
        while not stop.is_set():
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                found.append(_value(message))
        while (message := reader.poll(1.0)) is not None:
            found.append(_value(message))
        reader.close()

    reading = asyncio.create_task(asyncio.to_thread(read))
    try:
        await moving(url, "processors", [made[1], made[2], made[0]], 6)
        await asyncio.to_thread(filling.finish)
        async with asyncio.timeout(_SECONDS):
            while len(set(found)) < _RECORDS and not processing.done():
                await asyncio.sleep(0.1)
    finally:
        stop.set()
        await asyncio.gather(processing, reading)
    assert Counter(found) == Counter(range(_RECORDS))


async def test_the_broker_that_holds_a_group_stops(url: str, made: list[Node]) -> None:
    await asyncio.to_thread(_create, made, "t")
    await move(url, "g", made[1])

    def commit(offset: int) -> None:
        consumer = Consumer(_quiet(made, **{"group.id": "g", "enable.auto.commit": False}))
        _again(lambda: consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False))
        consumer.close()

    def committed() -> int:
        consumer = Consumer(_quiet(made, **{"group.id": "g"}))
        [found] = _again(lambda: consumer.committed([TopicPartition("t", 0)], _SECONDS))
        consumer.close()
        return int(found.offset)

    await asyncio.to_thread(commit, 7)
    await made[1].stop()
    assert await asyncio.to_thread(committed) == 7
    await asyncio.to_thread(commit, 8)
    assert await asyncio.to_thread(committed) == 8


def _again(ask: Callable[[], Any]) -> Any:
    """Until the group has a coordinator."""
    for _ in range(100):
        try:
            return ask()
        except KafkaException as error:
            assert error.args[0].retriable() or error.args[0].code() in (
                KafkaError.NOT_COORDINATOR,
                KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError._TIMED_OUT,
            ), error
            threading.Event().wait(0.3)
    raise AssertionError("the group has no coordinator")


def _until(is_so: Callable[[], bool]) -> None:
    """Brokers are asked one after the other, and a group that moves meanwhile may be missing."""
    for _ in range(200):
        if is_so():
            return
        threading.Event().wait(0.1)
    raise AssertionError("the list is not as it should be")


def _listed(admin: AdminClient) -> Any:
    """librdkafka does not ask again a broker that loads a scope."""
    while True:
        listed = admin.list_consumer_groups().result(_SECONDS)
        if not listed.errors:
            return listed
        assert {each.code() for each in listed.errors} == {KafkaError.COORDINATOR_LOAD_IN_PROGRESS}


async def test_admin_clients_see_all_groups(url: str, made: list[Node]) -> None:
    """Those of librdkafka, and our own."""
    await asyncio.to_thread(_create, made, "t")
    names = [f"group-{number}" for number in range(12)]

    def talk() -> None:
        with Client(kafka(made[2:])) as client:
            for number, name in enumerate(names):
                client.commit_offsets(name, {("t", 0): number})
            _until(lambda: client.group_names() == sorted(names))
            _until(lambda: [each.name for each in client.groups()] == sorted(names))
            found = client.group_offsets(client.group(names[3]))
            assert [(each.partition, each.committed) for each in found] == [(0, 3)]
        admin = AdminClient(_quiet(made))
        _until(lambda: {each.group_id for each in _listed(admin).valid} == set(names))
        for name, described in admin.describe_consumer_groups(names).items():
            assert described.result(_SECONDS).group_id == name
        wanted = ConsumerGroupTopicPartitions(names[5], [TopicPartition("t", 0)])
        [answer] = admin.list_consumer_group_offsets([wanted]).values()
        assert answer.result(_SECONDS).topic_partitions[0].offset == 5
        for deleted in admin.delete_consumer_groups(names[:6]).values():
            deleted.result(_SECONDS)
        with Client(kafka(made[:1])) as client:
            _until(lambda: client.group_names() == sorted(names[6:]))
            assert client.delete_groups(names[6:]) == dict.fromkeys(names[6:])
            _until(lambda: client.groups() == [])

    await asyncio.to_thread(talk)
