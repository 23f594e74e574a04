"""Whose the broker's state is: storage and the modules that make the keys agree on it."""

from posthouse.broker.groups.offsets import CommittedOffset, Offsets
from posthouse.broker.progress.progress import Progress
from posthouse.broker.routing.definitions import Binding
from posthouse.broker.routing.encoding import binding_key, exchange_key
from posthouse.broker.subscriptions import store
from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.storage.owners import owner_of
from posthouse.storage.spaces import Space

GROUP = GroupId("grüppe")
PARTITION = PartitionId(TopicId(b"t" * 16), 258)


def test_a_group_owns_its_offsets() -> None:
    committed = CommittedOffset(offset=1, committed_ms=2)
    [put] = Offsets.puts(GROUP, {PARTITION: committed})
    assert put.owner == GROUP.encode()


def test_a_transactional_id_owns_its_state_and_its_offsets() -> None:
    transaction = Transaction(id="tüx", producer=ProducerIdentity(1, 2), timeout_ms=3, changed_ms=4)
    for put in (transaction.put(), transaction.removal(), transaction.offset_put(b"key", b"value")):
        assert put.owner == "tüx".encode()


def test_a_namespace_owns_its_exchanges_bindings_and_queues() -> None:
    binding = Binding(source="x", destination="q", key=b"key")
    for space in (Space.EXCHANGES, Space.QUEUES):
        assert owner_of(space, exchange_key("näme", "x")) == "näme".encode()
    assert owner_of(Space.BINDINGS, binding_key("näme", binding)) == "näme".encode()


def test_a_queue_owns_its_progress() -> None:
    progress = Progress(b"q" * 16, 3, 0)
    progress.is_changed = True
    for put in progress.puts():
        assert put.owner == b"q" * 16


def test_a_share_group_owns_its_topics_and_each_of_them_its_progress() -> None:
    assert store.put_group(GROUP).owner == store.put_group(GROUP, PARTITION.topic).owner == GROUP.encode()
    queue, _ = store.lane_of(GROUP, PARTITION)
    puts = list(store.new_progress(GROUP, PARTITION, 0).puts())
    assert puts and all(put.owner == queue for put in puts)
