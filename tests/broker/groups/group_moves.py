"""A group that moves to another broker, through the bytes that are stored in between."""

from posthouse.broker.groups.classic import ClassicGroup
from posthouse.broker.groups.classic_snapshot import ClassicSnapshot, classic_snapshot, resumed_classic
from posthouse.broker.groups.consumer import ConsumerGroup
from posthouse.broker.groups.consumer_snapshot import ConsumerSnapshot, consumer_snapshot, resumed_consumer
from posthouse.broker.groups.snapshot_format import (
    Snapshot,
    StoredSnapshot,
    decoded_snapshot,
    encoded_snapshot,
)
from posthouse.model.errors import NotCoordinator
from tests.broker.groups import classic_clients, consumer_clients


def stored_and_read(snapshot: Snapshot) -> Snapshot:
    return decoded_snapshot(encoded_snapshot(StoredSnapshot(stored_ms=0, group=snapshot))).group


def move_classic(group: classic_clients.Group) -> bool:
    """Whether it goes on there: it has members that know their ids."""
    rules = group.machine._rules
    group.machine.close(NotCoordinator("it moves"))
    left = classic_snapshot(group.machine)
    if left is None:
        group.machine = ClassicGroup(rules)
        return False
    found = stored_and_read(left)
    assert isinstance(found, ClassicSnapshot)
    group.machine = resumed_classic(found, rules, group.now)
    return True


def move_consumer(group: consumer_clients.Group) -> None:
    left = consumer_snapshot(group.machine)
    rules = group.machine.rules
    if left is None:
        group.machine = ConsumerGroup(rules)
        return
    found = stored_and_read(left)
    assert isinstance(found, ConsumerSnapshot)
    group.machine = resumed_consumer(found, rules, group.topics, group.now)
