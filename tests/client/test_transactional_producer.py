"""Transactions from the client's side: what is written, committed together, lost on the way, and fenced."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.client.batch_sender import REQUEST_BYTES, BatchSender
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import (
    BadArgument,
    BrokerUnreachable,
    MessageTooLarge,
    ProducerFenced,
    RequestRefused,
    TopicNotFound,
)
from posthouse.client.together import Committed, abort_together, commit_together, fence_sequence
from posthouse.client.transactional_producer import TransactionalProducer
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Address
from posthouse.testing import ThreadBroker, running_broker
from tests.client.cutting_proxy import Cut, CuttingProxy

PRODUCE, INIT, END_TOGETHER = 0, 22, 10_000
TIMEOUT_MS = 60_000


@contextmanager
def cluster_of(bootstrap: str) -> Iterator[Cluster]:
    cluster = Cluster(bootstrap, timeout=10)
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(posthouse_session: ThreadBroker) -> Iterator[Cluster]:
    with cluster_of(posthouse_session.kafka) as made:
        yield made


def producer_of(cluster: Cluster, id: str, **options: float) -> TransactionalProducer:
    made = TransactionalProducer(cluster, id, transaction_timeout_ms=TIMEOUT_MS, **options)
    made.begin()
    return made


def write(producer: TransactionalProducer, info: TopicInfo, *values: bytes, partition: int = 0) -> None:
    builder = BatchBuilder(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.next_sequence(info, partition),
        transactional=True,
    )
    for value in values:
        builder.add(None, value, timestamp=1_700_000_000_000)
    producer.send(info, partition, builder.build(), len(values))


def plain(*values: bytes) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.add(None, value, timestamp=1_700_000_000_000)
    return builder.build()


def values(client: Client, topic: str) -> list[bytes | None]:
    return [message.value for message in client.messages(topic)]


def test_nothing_is_visible_before_the_commit(client: Client, cluster: Cluster, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-2", partitions=1)
    first, second = client.topic(topic), client.topic(f"{topic}-2")
    producers = [producer_of(cluster, f"{topic}/{number}") for number in range(2)]
    for number, producer in enumerate(producers):
        write(producer, first, b"%d" % number, partition=number)
        write(producer, first, b"%d again" % number, partition=number)
        write(producer, second, b"other %d" % number)
        producer.flush()
        producer.close()
    assert values(client, topic) == []
    assert fence_sequence(cluster, topic) is None
    members = [producer.member for producer in producers]
    assert commit_together(cluster, topic, 0, members) == Committed(is_new=True, sequence=0)
    assert commit_together(cluster, topic, 0, members) == Committed(is_new=False, sequence=0)
    assert sorted(map(str, values(client, topic))) == ["b'0 again'", "b'0'", "b'1 again'", "b'1'"]
    assert values(client, second.name) == [b"other 0", b"other 1"]
    assert fence_sequence(cluster, topic) == 0


def test_without_a_number(client: Client, cluster: Cluster, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    producer = producer_of(cluster, f"{topic}/0")
    write(producer, client.topic(topic), b"a")
    producer.flush()
    assert commit_together(cluster, topic, None, [producer.member]) == Committed(is_new=True, sequence=None)
    assert commit_together(cluster, topic, None, [producer.member]) == Committed(is_new=False, sequence=None)
    assert values(client, topic) == [b"a"]


@pytest.mark.parametrize("how", ["by itself", "together", "all of the name"])
def test_abort(client: Client, cluster: Cluster, topic: str, how: str) -> None:
    client.create_topic(topic, partitions=1)
    producer = producer_of(cluster, f"{topic}/0")
    write(producer, client.topic(topic), b"given up")
    producer.flush()
    member = producer.member
    if how == "by itself":
        producer.abort()
    else:
        abort_together(cluster, topic, None, [member] if how == "together" else None)
    with pytest.raises(ProducerFenced):
        commit_together(cluster, topic, 0, [member])
    with client.producer(topic) as after:
        after.send(b"seen")
    assert values(client, topic) == [b"seen"], "nothing holds back readers"


def test_an_aborted_producer_begins_anew(client: Client, cluster: Cluster, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    info = client.topic(topic)
    producer = producer_of(cluster, f"{topic}/0")
    write(producer, info, b"a")
    producer.abort()
    with pytest.raises(BadArgument, match="begin"):
        write(producer, info, b"b")
    producer.begin()
    write(producer, info, b"c")
    producer.flush()
    commit_together(cluster, topic, 0, [producer.member])
    assert values(client, topic) == [b"c"]


def test_the_second_producer_of_an_id_fences_the_first(client: Client, cluster: Cluster, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    info = client.topic(topic)
    first = producer_of(cluster, f"{topic}/0")
    write(first, info, b"first")
    first.flush()
    second = producer_of(cluster, f"{topic}/0")
    write(first, info, b"late")
    with pytest.raises(ProducerFenced, match=f"another producer has taken the place of '{topic}/0'"):
        first.flush()
    write(second, info, b"second")
    second.flush()
    with pytest.raises(ProducerFenced):
        commit_together(cluster, topic, 0, [first.member])
    assert commit_together(cluster, topic, 0, [second.member]).is_new
    assert values(client, topic) == [b"second"]


def test_refusals_are_not_tried_again(client: Client, cluster: Cluster, topic: str) -> None:
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": "1000"})
    info = client.topic(topic)
    producer = producer_of(cluster, f"{topic}/0")
    write(producer, info, b"x" * 2000)
    with pytest.raises(MessageTooLarge):
        producer.flush()
    client.delete_topic(topic)
    sender = BatchSender(cluster)
    sender.send(info, 0, plain(b"a"))
    with pytest.raises(TopicNotFound, match=topic):
        sender.flush()
    sender.close()
    with pytest.raises(RequestRefused, match="transaction_max_timeout_ms"):
        TransactionalProducer(cluster, topic, transaction_timeout_ms=2**31 - 1).begin()
    with pytest.raises(RequestRefused, match="does not belong"):
        commit_together(cluster, "other", 0, [producer.member])


CUTS: dict[str, Callable[[int, int], Cut]] = {
    "answers to every fourth produce": lambda key, number: Cut.AFTER if number % 4 == 3 else Cut.NONE,
    "every fourth produce": lambda key, number: Cut.BEFORE if number % 4 == 3 else Cut.NONE,
    "every first, before and after": lambda key, number: {0: Cut.BEFORE, 1: Cut.AFTER}.get(number, Cut.NONE),
}


@pytest.mark.parametrize("cut", CUTS)
def test_lost_connections_lose_and_double_nothing(
    posthouse_session: ThreadBroker, client: Client, topic: str, cut: str
) -> None:
    client.create_topic(topic, partitions=3)
    info = client.topic(topic)

    def decide(key: int, number: int) -> Cut:
        return CUTS[cut](key, number) if key in (PRODUCE, INIT, END_TOGETHER) else Cut.NONE

    with CuttingProxy(posthouse_session.kafka, decide) as proxy, cluster_of(proxy.address) as cluster:
        producer = producer_of(cluster, f"{topic}/0")
        for number in range(40):
            write(producer, info, b"%02d" % number, b"x" * (REQUEST_BYTES // 20), partition=number % 3)
        producer.flush()
        for _ in range(3):
            commit_together(cluster, topic, 5, [producer.member])
        assert fence_sequence(cluster, topic) == 5
        assert proxy.cuts > 1
    found = [value for value in values(client, topic) if value is not None and len(value) == 2]
    by_partition = [[value for value in found if int(value) % 3 == index] for index in range(3)]
    assert by_partition == [[b"%02d" % number for number in range(index, 40, 3)] for index in range(3)]


def test_a_broker_that_restarts_in_the_middle(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as broker:
        address = broker.kafka
        with Client(address) as client:
            client.create_topic("t", partitions=1)
            info = client.topic("t")
        cluster = Cluster(address, timeout=10)
        producer = producer_of(cluster, "q/0")
        write(producer, info, b"before")
        producer.flush()
    with running_broker(data=tmp_path, kafka=Address.parse(address)), Client(address) as client:
        write(producer, info, b"after")
        producer.flush()
        assert commit_together(cluster, "q", 1, [producer.member]).is_new
        assert values(client, "t") == [b"before", b"after"]
    with running_broker(data=tmp_path, kafka=Address.parse(address)):
        assert not commit_together(cluster, "q", 1, [producer.member]).is_new
        assert fence_sequence(cluster, "q") == 1
    producer.close()
    cluster.close()


def test_patience_ends() -> None:
    with running_broker() as broker:
        with Client(broker.kafka) as client:
            client.create_topic("t", partitions=1)
            info = client.topic("t")
        cluster = Cluster(broker.kafka, timeout=10)
        producer = producer_of(cluster, "q/0", patience=0.3)
    write(producer, info, b"a")
    with pytest.raises(BrokerUnreachable):
        producer.flush()
    with pytest.raises(BrokerUnreachable):
        fence_sequence(cluster, "q", patience=0.3)
    producer.close()


def test_batches_without_a_producer(client: Client, cluster: Cluster, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    sender = BatchSender(cluster)
    for number in range(20):
        sender.send(client.topic(topic), 0, plain(b"%d" % number))
    sender.flush()
    sender.close()
    assert values(client, topic) == [b"%d" % number for number in range(20)]
