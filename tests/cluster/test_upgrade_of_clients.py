"""An upgrade as docs/cluster-operations.md has it, under clients: they lose nothing, and show no error.

The same holds of brokers that are stopped without being drained before.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.cluster.releases import COMPATIBLE, THIS, Brokers, Release, brokers_of, later_release
from tests.cluster.survivors import Aiokafka, Librdkafka, Pika, Survivor
from tests.cluster.test_rolling_upgrade import versions

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PATIENCE_SECONDS = 120.0
PARTITIONS = 3
NAMES = "abc"
MEMBERS = {"aiokafka", "librdkafka", "kip-848"}
"""Clients that wait for each commit of a group, of both protocols."""
_PAUSE_SECONDS = 0.02
_MORE = 20


class Transactions(Survivor):
    """aiokafka: every third transaction is aborted, and a consumer of committed records reads the others."""

    topic = "transactions"

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.aborted: set[int] = set()

    def _produce(self) -> None:
        asyncio.run(self._produce_on())

    async def _produce_on(self) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._address, transactional_id="upgraded", metadata_max_age_ms=500
        ) as producer:
            number = 0
            while self._goes_on():
                number += 1
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send_and_wait(self.topic, b"%d" % number, partition=partition)
                if number % 3:
                    await producer.commit_transaction()
                    self.acknowledged(number)
                else:
                    await producer.abort_transaction()
                    self.aborted.add(number)
                await asyncio.sleep(_PAUSE_SECONDS)

    def _consume(self) -> None:
        asyncio.run(self._consume_on())

    async def _consume_on(self) -> None:
        async with AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self._address,
            group_id="of-transactions",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            metadata_max_age_ms=500,
        ) as consumer:
            while self._lacks():
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    self.read += [int(message.value or b"") for message in messages]


class Shares(Librdkafka):
    """A share group of librdkafka, which gets what an idempotent producer sends."""

    def _consume(self) -> None:
        consumer = ShareConsumer({**self._common, "group.id": self._topic})
        consumer.subscribe([self._topic])
        while self._lacks():
            for message in consumer.poll(0.2):
                assert message.error() is None, message.error()
                self.read.append(int(message.value() or b""))
        consumer.close()


@pytest.fixture
def brokers(url: str, tmp_path: Path) -> Iterator[Brokers]:
    with brokers_of(url, tmp_path) as made:
        yield made


@pytest.mark.parametrize("drains", [True, False], ids=["drained", "stopped"])
def test_clients_of_an_upgrade(url: str, brokers: Brokers, tmp_path: Path, drains: bool) -> None:
    later = later_release(tmp_path / "later", "99.1.0", COMPATIBLE)
    for name in NAMES:
        brokers.start(THIS, name)
    _prepare(brokers.kafka)
    transactions = Transactions(brokers.kafka)
    survivors: dict[str, Survivor] = {
        "aiokafka": Aiokafka(brokers.kafka, commits=True),
        "librdkafka": Librdkafka(brokers.kafka, commits=True),
        "kip-848": Librdkafka(brokers.kafka, "kip-848", commits=True, protocol="consumer"),
        "transactions": transactions,
        "shares": Shares(brokers.kafka, "shares"),
        "pika": Pika(brokers.amqp),
    }
    for each in survivors.values():
        each.start()
    _progress(survivors)
    _done(later, "storage", "migrate", "--database", url)
    _progress(survivors)
    for name in reversed(NAMES):
        admin = brokers.admin(next(each for each in NAMES if each != name))
        if drains:
            _done(later, "cluster", "drain", name, "--admin", admin)
            _progress(survivors)
        brokers.stop(name)
        _progress(survivors)
        brokers.start(later, name)
        if drains:
            _done(later, "cluster", "undrain", name, "--admin", admin)
        _progress(survivors)
    for each in survivors.values():
        each.finish(PATIENCE_SECONDS)
    for kind, each in survivors.items():
        assert set(each.sent) <= set(each.read), kind
    assert {kind: each.errors for kind, each in survivors.items() if each.errors} == {}
    assert {kind for kind, each in survivors.items() if each.has_committed} == MEMBERS
    assert transactions.aborted and transactions.aborted.isdisjoint(transactions.read)
    assert asyncio.run(versions(brokers.admin("a"))) == dict.fromkeys(NAMES, "99.1.0")


def _prepare(bootstrap: str) -> None:
    """Topics, and a share group that begins with the first record."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = ("aiokafka", "librdkafka", "kip-848", Transactions.topic, "shares")
    for made in admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in names]).values():
        made.result(30)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "shares", incremental_configs=[earliest])
    admin.incremental_alter_configs([group])[group].result(30)


def _done(release: Release, *words: str) -> None:
    done = release.command(*words)
    assert done.returncode == 0, done.stderr


def _progress(survivors: Mapping[str, Survivor]) -> None:
    """Until each client has sent more, and has read some of it."""
    wanted = {name: max(each.sent, default=0) + _MORE for name, each in survivors.items()}
    _wait_until(survivors, lambda name, each: max(each.read, default=0) >= wanted[name])


def _wait_until(survivors: Mapping[str, Survivor], is_so: Callable[[str, Survivor], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while waiting := [name for name, each in survivors.items() if not is_so(name, each)]:
        for name, each in survivors.items():
            if each.failure is not None:
                raise AssertionError(f"{name} has failed") from each.failure
        assert time.monotonic() < deadline, f"no further: {', '.join(waiting)}"
        time.sleep(0.05)
