"""Transactions over a restart: clean, and in the middle of things."""

from pathlib import Path

import pytest

from posthouse.broker.transactions.transaction import (
    ProducerIdentity,
    Transaction,
    TransactionState,
    Work,
    decode_transaction,
    split_offset_key,
)
from posthouse.model.clock import ManualClock
from posthouse.model.errors import DataDamaged, OutOfOrderSequence, ProducerFenced
from posthouse.model.ids import PartitionId, new_topic_id
from tests.broker.transactions.producers import TIMEOUT_MS, Bench, Client
from tests.storage.stores import crash_copy, file_storage

BOTH = pytest.mark.parametrize(
    "epoch_per_transaction", [False, True], ids=["adds partitions", "bumps epochs"]
)


async def test_a_crash_before_the_commit_of_the_end(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    await client.commit_offset(5)
    bench.ledger.dead = True
    await bench.give_up(client.end(commit=True))
    await bench.crash()
    assert bench.broker.transactions.ids.get(client.id).state is TransactionState.ONGOING
    assert (bench.stable(), bench.offset_of("g")) == (0, None)
    assert bench.broker.groups.offsets.unstable("g", client.partition(0))  # type: ignore[arg-type]
    bench.clock.advance(TIMEOUT_MS / 1000)
    await bench.broker.transactions.abort_expired()
    assert await bench.committed() == []
    assert (bench.stable(), bench.offset_of("g")) == (2, None)


async def test_a_crash_after_the_commit_of_the_end(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    await client.commit_offset(5)
    before = client.producer
    bench.ledger.mute = True
    await bench.give_up(client.end(commit=True))
    await bench.crash()
    assert bench.broker.transactions.ids.get(client.id).state is TransactionState.COMMITTED
    assert await bench.committed() == [b"a"]
    assert bench.offset_of("g") == 5
    client.lose_connection()
    await client.end(member=client.member(producer=before))
    assert await bench.committed() == [b"a"]


async def test_a_restart_knows_every_partition(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    await client.write(b"b", partition=1)
    await bench.crash()
    bench.clock.advance(TIMEOUT_MS / 1000)
    await bench.broker.transactions.abort_expired()
    assert (bench.stable(0), bench.stable(1)) == (2, 2)


class Files:
    """A broker on files that is stopped or killed, and goes on in what is left."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self._copies = 0

    async def start(self) -> Bench:
        self.storage = file_storage(self.directory, clock=self.clock)
        self.bench = Bench(self.storage, self.clock)
        await self.bench.start()
        return self.bench

    async def stop(self) -> None:
        await self.bench.close()

    async def again(self, *, killed: bool) -> Bench:
        if killed:
            self._copies += 1
            copy = self.directory.with_name(f"copy-{self._copies}")
            self.directory = await crash_copy(self.storage, copy)
        await self.stop()
        return await self.start()


KILLED = pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])


@KILLED
@BOTH
async def test_open_transactions_stay_open(tmp_path: Path, killed: bool, epoch_per_transaction: bool) -> None:
    files = Files(tmp_path / "data")
    client = Client(await files.start(), epoch_per_transaction=epoch_per_transaction)
    await client.init()
    await client.write(b"a")
    await client.commit_offset(3)
    client.bench = await files.again(killed=killed)
    client.lose_connection()
    assert await client.bench.committed() == []
    await client.write(b"b")
    await client.end(commit=True)
    assert await client.bench.committed() == [b"a", b"b"]
    client.bench = await files.again(killed=killed)
    assert await client.bench.committed() == [b"a", b"b"]
    assert client.bench.offset_of("g") == 3
    await files.stop()


@KILLED
@BOTH
async def test_aborted_stays_aborted(tmp_path: Path, killed: bool, epoch_per_transaction: bool) -> None:
    files = Files(tmp_path / "data")
    client = Client(await files.start(), epoch_per_transaction=epoch_per_transaction)
    await client.init()
    await client.write(b"no")
    await client.end(commit=False)
    client.bench = await files.again(killed=killed)
    client.lose_connection()
    await client.write(b"yes")
    await client.end(commit=True)
    client.bench = await files.again(killed=killed)
    assert await client.bench.committed() == [b"yes"]
    await files.stop()


@KILLED
@BOTH
async def test_producers_are_remembered(tmp_path: Path, killed: bool, epoch_per_transaction: bool) -> None:
    files = Files(tmp_path / "data")
    client = Client(await files.start(), epoch_per_transaction=epoch_per_transaction)
    first = await client.init()
    if not epoch_per_transaction:
        await client.add(0)
    batch = client.batch(b"a")
    await client.send(batch)
    client.bench = await files.again(killed=killed)
    client.lose_connection()
    assert await client.send(batch) == 0
    client.sequences[0] = 5
    with pytest.raises(OutOfOrderSequence):
        await client.send(client.batch(b"x"))
    successor = Client(client.bench, epoch_per_transaction=epoch_per_transaction)
    assert await successor.init() == first.next_epoch
    with pytest.raises(ProducerFenced):
        await client.send(batch)
    other = Client(client.bench, "other", epoch_per_transaction=epoch_per_transaction)
    assert (await other.init()).producer_id > first.producer_id, "never given out twice"
    await files.stop()


async def test_producers_are_forgotten_after_a_day(tmp_path: Path) -> None:
    files = Files(tmp_path / "data")
    bench = await files.start()
    client = Client(bench, epoch_per_transaction=False)
    await client.init()
    await client.write(b"a")
    partition = client.partition(0)
    await client.end()
    files.clock.advance(24 * 3600 + 1)
    await files.storage.enforce_retention()
    assert not files.storage.producers(partition)
    await files.stop()


def test_the_stored_form() -> None:
    partitions = {PartitionId(new_topic_id(), 3), PartitionId(new_topic_id(), 0)}
    transaction = Transaction(
        id="naïve",
        producer=ProducerIdentity(2**40, 32767),
        previous=ProducerIdentity(7, 32766),
        timeout_ms=900_000,
        changed_ms=1_700_000_000_001,
        work=Work(1_700_000_000_000, partitions),
    )
    put = transaction.put()
    assert put.value is not None
    found = decode_transaction(put.key, put.value)
    assert found.work is not None
    assert (found.id, found.producer, found.previous) == ("naïve", transaction.producer, transaction.previous)
    assert (found.timeout_ms, found.changed_ms) == (900_000, 1_700_000_000_001)
    assert (found.work.partitions, found.work.started_ms) == (partitions, 1_700_000_000_000)
    assert found.work.is_stored
    with pytest.raises(DataDamaged):
        decode_transaction(put.key, b"\x09" + put.value[1:])


def test_offsets_are_stored_under_their_transaction() -> None:
    transaction = Transaction(id="naïve", producer=ProducerIdentity(1, 0), timeout_ms=1, changed_ms=0)
    put = transaction.offset_put(b"\x00\xffkey", b"value")
    assert split_offset_key(put.key) == ("naïve", b"\x00\xffkey")
