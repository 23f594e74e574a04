"""One partition of a saga, loaded and changed without a runner."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from posthouse.client import Client
from posthouse.client.cluster import Cluster
from posthouse.client.together import Committed, commit_together
from posthouse.consistency.errors import Superseded
from posthouse.consistency.saga import Saga
from posthouse.consistency.saga import partition as partition_module
from posthouse.consistency.saga.events import Start
from posthouse.consistency.saga.machine import Change, Machine
from posthouse.consistency.saga.partition import SagaPartition
from posthouse.consistency.saga.state import Status
from posthouse.consistency.saga.topics import create_topics, state_topic
from posthouse.testing import ThreadBroker
from tests.consistency.relays import values

SAGA = Saga("s").step("a", print)


@pytest.fixture
def broker() -> Iterator[ThreadBroker]:
    with ThreadBroker() as running:
        yield running


@contextmanager
def loaded(broker: ThreadBroker) -> Iterator[SagaPartition]:
    cluster = Cluster(broker.kafka, timeout=30)
    with Client(broker.kafka) as client:
        create_topics(client, SAGA.name, 1)
        events, states = client.topic(SAGA.events_topic), client.topic(SAGA.state_topic)
    partition = SagaPartition(cluster, SAGA, events, states, 0)
    try:
        yield partition
    finally:
        partition.close()
        cluster.close()


def begun(id: str) -> Change:
    change = Machine(SAGA, lambda: 0, lambda *_: None).handle(id, None, Start())
    assert change is not None
    return change


def ended(id: str) -> Change:
    return Change(state=msgspec.structs.replace(begun(id).state, status=Status.COMPLETED, step=None))


def test_another_change_for_the_same_event_is_not_taken_for_ones_own(
    broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner sleeps between its last check and its commit."""
    with loaded(broker) as slow:

        def other_first(*args: object, **named: object) -> Committed:
            monkeypatch.setattr(partition_module, "commit_together", commit_together)
            with loaded(broker) as other:
                other.commit(0, ended("1"))
            return commit_together(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(partition_module, "commit_together", other_first)
        with pytest.raises(Superseded):
            slow.commit(0, begun("1"))
        assert slow.state("1") is None
    with Client(broker.kafka) as client:
        assert len(values(client, state_topic(SAGA.name))) == 1


def test_a_tombstone_counts_before_it_is_compacted(broker: ThreadBroker) -> None:
    with loaded(broker) as partition:
        for offset, change in enumerate([begun("1"), ended("2"), begun("3"), ended("4")]):
            partition.commit(offset, change)
    with Client(broker.kafka) as client, client.producer(SAGA.state_topic) as producer:
        for id in (b"1", b"2"):
            producer.send(None, id)
    with loaded(broker) as again:
        assert again.state("1") is None and not again.is_finished("2")
        assert again.state("3") is not None and again.is_finished("4")


def test_topics_that_are_created_anew_begin_anew(broker: ThreadBroker) -> None:
    with loaded(broker) as partition:
        partition.commit(6, begun("1"))
    with Client(broker.kafka) as client:
        client.delete_topic(SAGA.events_topic)
        client.delete_topic(SAGA.state_topic)
    with loaded(broker) as anew:
        assert not anew.is_done(0) and anew.state("1") is None
        anew.commit(0, begun("1"))
        assert anew.is_done(0)
