"""Batches: what is legal is sent, whatever is in the same batch; what is too large is set aside alone."""

import threading
from collections.abc import Sequence

import pytest

from posthouse.client import Client
from posthouse.client.errors import BrokerUnreachable, ClientError
from posthouse.consistency import outbox_table
from posthouse.consistency.databases import Database
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.outbox import shard_of
from posthouse.consistency.outbox_table import Batch, OutboxMessage
from posthouse.consistency.relay import Counts, Relay
from posthouse.testing import ThreadBroker, running_broker
from tests.consistency.relays import publish, relay_of, table_of, values


class CountingTarget(LogTarget):
    """Notes how many messages each probe has."""

    def __init__(self, kafka: str) -> None:
        super().__init__(kafka)
        self.probes: list[int] = []

    def refusal(self, name: str, messages: Sequence[OutboxMessage]) -> ClientError | None:
        self.probes.append(len(messages))
        return super().refusal(name, messages)


def keys_of_shards(count: int) -> list[str]:
    """Keys of different shards."""
    keys = {shard_of(str(number).encode()): str(number) for number in range(200)}
    return [keys[shard] for shard in sorted(keys)][:count]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (1_048_588, [50_000] * 10 + [900_000]),
        (20_000, [900] * 300),
        (3_000, [900] * 20),
    ],
)
def test_messages_that_are_legal_alone_are_sent(
    limit: int, sizes: list[int], url: str, broker: ThreadBroker, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": str(limit)})
    publish(url, topic, *("x" * size for size in sizes), key="k")
    with relay_of(url, broker) as relay:
        assert relay.send_all() == len(sizes) and not relay.counts.set_aside
    assert list(map(len, values(client, topic))) == sizes


def test_messages_before_a_large_one_are_no_reason_to_probe(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": "20000"})
    sizes = [900] * 100 + [19_000, 900]
    publish(url, topic, *("x" * size for size in sizes), key="k")
    with CountingTarget(broker.kafka) as target:
        assert Relay(table_of(database), target, Counts()).send_all() == len(sizes)
    assert list(map(len, values(client, topic))) == sizes and not target.probes


def test_few_of_many_are_refused(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": "2000"})
    sizes = [3000 if number in (17, 63) else 100 + number for number in range(100)]
    publish(url, topic, *("x" * size for size in sizes), key="k")
    with CountingTarget(broker.kafka) as target:
        relay = Relay(table_of(database), target, Counts())
        assert relay.send_all() == 98 and relay.counts.set_aside == 2
    assert list(map(len, values(client, topic))) == [size for size in sizes if size < 3000]
    assert len(target.probes) < 40


def test_a_topic_that_is_missing_costs_one_probe(url: str, topic: str, database: Database) -> None:
    """Of a broker that does not create topics."""
    publish(url, topic, *map(str, range(50)), key="k")
    with running_broker(auto_create_topics=False) as broker, CountingTarget(broker.kafka) as target:
        relay = Relay(table_of(database), target, Counts())
        assert relay.send_all() == 0
    assert relay.counts.set_aside == 50 and target.probes == [1]


def test_a_batch_has_a_limit_in_bytes(
    url: str, topic: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_table, "_BATCH_BYTES", 1000)
    publish(url, topic, "x" * 400, "x" * 400, "x" * 400, "x" * 5000, "x", key="k")
    shard, table = shard_of(b"k"), table_of(database)
    assert table.take(shard)
    found = []
    while (batch := table.next_batch(shard, 500)) is not None:
        found.append([len(each.value or b"") for each in batch.messages])
        turn = table.take(shard)
        assert turn is not None and turn.under_way is not None
        assert turn.under_way.messages == batch.messages
    assert found == [[400, 400], [400], [5000], [1]]


class FailingTarget:
    """Does not reach the partitions of one shard, and notes what it gets."""

    def __init__(self, fails: int | None, after_write: threading.Event | None = None) -> None:
        self._fails = fails
        self._after_write = after_write
        self.written: list[tuple[str, int]] = []

    def last_number(self, name: str) -> int:
        return 0

    def write(self, name: str, batch: Batch, *, alone: bool = False) -> None:
        shard = name.rpartition(".")[2]
        if shard == str(self._fails):
            raise BrokerUnreachable("not now")
        self.written.append((shard, len(batch.messages)))
        if self._after_write is not None:
            self._after_write.set()

    def refusal(self, name: str, messages: object) -> ClientError | None:
        return None


def test_an_error_of_one_shard_does_not_stop_the_others(url: str, topic: str, database: Database) -> None:
    keys = keys_of_shards(4)
    for key in keys:
        publish(url, topic, key, key=key)
    shards = [str(shard_of(key.encode())) for key in keys]
    target = FailingTarget(fails=int(shards[0]))
    relay = Relay(table_of(database), target, Counts())
    with pytest.raises(BrokerUnreachable):
        relay.send_all()
    assert sorted(shard for shard, _ in target.written) == sorted(shards[1:])


def test_a_shard_has_a_turn_of_some_batches(url: str, topic: str, database: Database) -> None:
    first, second = keys_of_shards(2)
    publish(url, topic, *map(str, range(25)), key=first)
    publish(url, topic, "1", key=second)
    target = FailingTarget(fails=None)
    relay = Relay(table_of(database), target, Counts(), batch_size=1)
    assert relay.send_all() == 26
    assert [shard for shard, _ in target.written].index(str(shard_of(second.encode()))) <= 10


def test_stop_is_seen_between_two_batches(url: str, topic: str, database: Database) -> None:
    publish(url, topic, *map(str, range(5)), key="k")
    stop = threading.Event()
    target = FailingTarget(fails=None, after_write=stop)
    relay = Relay(table_of(database), target, Counts(), batch_size=1, stop=stop)
    assert relay.send_all() == 1
    assert table_of(database).state().waiting == 4, "what was sent is removed"


def test_a_batch_whose_rows_were_deleted(
    url: str, topic: str, broker: ThreadBroker, client: Client, database: Database
) -> None:
    publish(url, topic, "1", key="k")
    shard, table = shard_of(b"k"), table_of(database)
    assert table.take(shard) and table.next_batch(shard, 10) is not None
    table.release(shard)
    with database.transaction():
        database.run("DELETE FROM posthouse_outbox")
    publish(url, topic, "2", key="k")
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 1
    assert values(client, topic) == ["2"]


def test_a_header_that_cannot_be_sent(
    url: str, topic: str, broker: ThreadBroker, client: Client, database: Database
) -> None:
    """An application has written it into the table by itself."""
    client.create_topic(topic, partitions=1)
    publish(url, topic, "1", "2", key="k")
    with database.transaction():
        [[row]] = database.run("SELECT min(id) FROM posthouse_outbox").rows
        database.run("UPDATE posthouse_outbox SET headers = ? WHERE id = ?", ['[[1, "x"]]', row])
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 1 and relay.counts.set_aside == 1
    assert values(client, topic) == ["2"]
