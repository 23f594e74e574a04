"""Two-phase commits from the client's side: what is prepared, decided, lost on the way, and fenced."""

import time
from collections.abc import Callable, Iterator

import pytest

from posthouse.client import Client
from posthouse.client.admin_client import AdminClient
from posthouse.client.errors import BadArgument, NotAllowed, ProducerFenced, RequestRefused
from posthouse.client.producer import BATCH_BYTES
from posthouse.client.two_phase_producer import PreparedTransaction, ProducerState, TwoPhaseProducer
from posthouse.testing import ThreadBroker, running_broker
from tests.client.cutting_proxy import Cut, CuttingProxy

PRODUCE, INIT, END = 0, 22, 26


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadBroker]:
    with running_broker(auto_create_topics=True, transaction_two_phase_commit_enable=True) as running:
        yield running


@pytest.fixture
def client(broker: ThreadBroker) -> Iterator[Client]:
    with Client(broker.kafka, timeout=30) as made:
        yield made


def ready(client: Client, id: str) -> TwoPhaseProducer:
    producer = client.two_phase_producer(id)
    assert producer.recover() is None
    return producer


def written(client: Client, id: str, *values: bytes) -> TwoPhaseProducer:
    producer = ready(client, id)
    producer.begin()
    for value in values:
        producer.send(id, value)
    return producer


def values(client: Client, topic: str) -> list[bytes | None]:
    client.topic(topic, create=True)
    return [message.value for message in client.messages(topic)]


def test_one_transaction_after_the_other(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    producer = ready(client, topic)
    seen = set()
    for number in range(3):
        producer.begin()
        for partition in range(3):
            producer.send(topic, b"%d" % number, b"k", [("h", b"x")], timestamp=5, partition=partition)
        assert sorted(map(str, values(client, topic))) == [f"b'{n // 3}'" for n in range(3 * number)]
        seen.add(producer.prepare())
        producer.commit()
    assert len(seen) == 3
    found = list(client.messages(topic))
    assert {(each.key, each.timestamp, len(each.headers)) for each in found} == {(b"k", 5, 1)}
    assert [each.value for each in found].count(b"2") == 3


@pytest.mark.parametrize("commit", [True, False])
def test_another_producer_decides(client: Client, topic: str, commit: bool) -> None:
    first = written(client, topic, b"a")
    prepared = first.prepare()
    first.close()
    with client.two_phase_producer(topic) as second:
        assert second.recover() == prepared
        with client.two_phase_producer(topic) as third:
            assert third.recover() == prepared
            with pytest.raises(ProducerFenced):
                second.commit()
            if commit:
                third.commit()
            else:
                third.abort()
            third.begin()
            third.send(topic, b"next")
            third.prepare()
            third.commit()
    assert sorted(filter(None, values(client, topic))) == ([b"a", b"next"] if commit else [b"next"])


def test_one_that_is_not_prepared_is_found_by_the_next(client: Client, topic: str) -> None:
    first = written(client, topic, b"a" * BATCH_BYTES)  # large enough to be sent at once
    first._sender.flush()
    second = client.two_phase_producer(topic)
    found = second.recover()
    assert isinstance(found, PreparedTransaction) and found.transactional_id == topic
    with pytest.raises(ProducerFenced):
        first.prepare()
    second.abort()
    assert values(client, topic) == []


def test_many_records(client: Client, topic: str) -> None:
    """More than a batch, and more than a request."""
    client.create_topic(topic, partitions=2)
    producer = ready(client, topic)
    producer.begin()
    sent = [b"%03d" % number + b"x" * 40_000 for number in range(250)]
    for number, value in enumerate(sent):
        producer.send(topic, value, partition=number % 2)
    producer.prepare()
    producer.commit()
    assert sorted(map(bytes, filter(None, values(client, topic)))) == sent


def test_abort_before_and_after(client: Client, topic: str) -> None:
    producer = written(client, topic, b"a")
    producer.abort()
    producer.begin()
    producer.send(topic, b"b")
    producer.prepare()
    producer.abort()
    producer.begin()
    producer.abort()
    producer.begin()
    producer.send(topic, b"c")
    producer.prepare()
    producer.commit()
    assert values(client, topic) == [b"c"]


def test_the_order_of_calls(client: Client, topic: str) -> None:
    producer = client.two_phase_producer(topic)
    for call in (producer.begin, producer.prepare, producer.commit, producer.abort):
        with pytest.raises(BadArgument, match="recover"):
            call()
    producer.recover()
    producer.begin()
    with pytest.raises(BadArgument, match="nothing"):
        producer.prepare()
    with pytest.raises(BadArgument):
        producer.commit()
    producer.send(topic, b"a")
    producer.prepare()
    with pytest.raises(BadArgument, match="waiting for the decision"):
        producer.send(topic, b"b")
    producer.commit()
    assert producer.state is ProducerState.READY


def test_a_transaction_that_takes_too_long(client: Client, broker: ThreadBroker, topic: str) -> None:
    producer = client.two_phase_producer(topic, transaction_timeout_ms=1)
    producer.recover()
    producer.begin()
    producer.send(topic, b"a" * BATCH_BYTES)
    producer._sender.flush()
    with AdminClient(broker.admin) as admin:
        while any(each["id"] == topic for each in admin.items("/v1/transactions")):
            time.sleep(0.05)  # until the broker has seen to it
    with pytest.raises(RequestRefused, match="no longer open"):
        producer.prepare()
    producer.begin()
    producer.abort()
    assert values(client, topic) == []


CUTS: dict[str, Callable[[int], Cut]] = {
    "each first request": lambda number: Cut.BEFORE if number == 0 else Cut.NONE,
    "each first answer": lambda number: Cut.AFTER if number == 0 else Cut.NONE,
    "every other answer": lambda number: Cut.AFTER if number % 2 else Cut.NONE,
}


@pytest.mark.parametrize("cut", CUTS)
def test_lost_connections_lose_and_double_nothing(
    broker: ThreadBroker, client: Client, topic: str, cut: str
) -> None:
    client.create_topic(topic, partitions=1)

    def decide(key: int, number: int) -> Cut:
        return CUTS[cut](number) if key in (PRODUCE, INIT, END) else Cut.NONE

    with CuttingProxy(broker.kafka, decide) as proxy, Client(proxy.address) as cut_off:
        producer = ready(cut_off, topic)
        for number in range(4):
            producer.begin()
            producer.send(topic, b"%d" % number)
            producer.prepare()
            if number == 1:
                producer.abort()
            else:
                producer.commit()
        assert proxy.cuts > 1
    assert values(client, topic) == [b"0", b"2", b"3"]


def test_a_broker_that_does_not_allow_it(topic: str) -> None:
    refused = pytest.raises(NotAllowed, match="transaction_two_phase_commit_enable")
    with running_broker() as plain, Client(plain.kafka) as client, refused:
        client.two_phase_producer(topic).recover()
