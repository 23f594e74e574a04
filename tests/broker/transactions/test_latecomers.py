"""Requests of an earlier transaction never touch a later one, not even those of clients that keep their
epoch, which alone would not tell them apart."""

from uuid import UUID, uuid4

import pytest

from posthouse.broker.transactions.transaction import TransactionState
from posthouse.model.errors import InvalidTransaction, OutOfOrderSequence, ProducerFenced, StorageFull
from posthouse.protocols.kafka.request_origins import ConnectionIdentity, CorrelatedOrigin
from tests.broker.transactions.producers import Bench, Client


def state(client: Client) -> TransactionState:
    return client.bench.broker.transactions.ids.get(client.id).state


async def finish_one(client: Client, value: bytes = b"one") -> None:
    await client.write(value)
    await client.end(commit=True)


async def test_an_end_that_is_repeated_over_its_connection(bench: Bench, client: Client) -> None:
    """Both protocols: the newer one is safe by its epoch."""
    await client.write(b"one")
    late = client.member()
    await client.end(member=late)
    await client.write(b"two")
    with pytest.raises(ProducerFenced):
        await client.end(member=late)
    assert state(client) is TransactionState.ONGOING
    await client.write(b"three")
    await client.end(commit=False)
    assert await bench.committed() == [b"one"]


async def test_an_end_that_was_stuck_in_an_older_connection(bench: Bench, old: Client) -> None:
    await old.write(b"one")
    late = old.member()
    old.lose_connection()
    await old.end()
    await old.write(b"two")
    with pytest.raises(ProducerFenced):
        await old.end(member=late)
    assert await bench.committed() == [b"one"]
    await old.end()
    assert await bench.committed() == [b"one", b"two"]


async def test_everything_that_was_stuck_in_an_older_connection(bench: Bench, old: Client) -> None:
    """An add before the end must not make the old connection part of the new transaction."""
    await finish_one(old, b"zero")
    late_add, late_end = old.member(), old.member()
    old.lose_connection()
    await finish_one(old, b"one")
    await old.write(b"two")
    with pytest.raises(ProducerFenced):
        await old.add(0, member=late_add)
    with pytest.raises(ProducerFenced):
        await old.end(member=late_end)
    await old.end(commit=False)
    assert await bench.committed() == [b"zero", b"one"]


async def test_an_end_that_somebody_replays_over_a_connection_of_his_own(bench: Bench, old: Client) -> None:
    await finish_one(old)
    await old.write(b"two")
    with pytest.raises(ProducerFenced):
        await old.end(member=old.member(CorrelatedOrigin(ConnectionIdentity(), 1)))
    await bench.broker.transactions.close()
    assert state(old) is TransactionState.ABORTED, "it might as well have been the client itself"
    with pytest.raises(ProducerFenced):
        await old.end()
    assert await bench.committed() == [b"one"]


async def test_a_client_that_lost_its_connection_may_end_over_another(bench: Bench, old: Client) -> None:
    await old.write(b"one")
    old.lose_connection()
    await old.end()
    assert await bench.committed() == [b"one"]


async def test_a_client_may_end_what_it_began_before_a_restart(bench: Bench, client: Client) -> None:
    await client.write(b"one")
    await client.commit_offset(5)
    await bench.crash()
    client.lose_connection()
    await client.write(b"two")
    await client.commit_offset(6)
    await client.end()
    assert await bench.committed() == [b"one", b"two"]
    assert bench.offset_of("g") == 6


async def test_a_late_batch_of_a_committed_transaction_is_known_already(bench: Bench, old: Client) -> None:
    await old.add(0)
    late = old.batch(b"one")
    await old.send(late)
    await old.end()
    await old.add(0)
    assert await old.send(late) == 0, "answered as before, and not written again"
    await old.write(b"two")
    await old.end()
    assert await bench.committed() == [b"one", b"two"]


async def test_a_late_batch_for_a_partition_that_has_no_part(bench: Bench, old: Client) -> None:
    await old.add(0)
    late = old.batch(b"late")
    await old.end(commit=False)
    await old.add(1)
    with pytest.raises(InvalidTransaction):
        await old.send(late)


@pytest.mark.parametrize("relayed_by", [None, uuid4()], ids=["direct", "relayed"])
async def test_a_late_batch_of_an_aborted_transaction(
    relayed_by: UUID | None, bench: Bench, old: Client
) -> None:
    """It fits the sequence, so nothing tells it from the next one but the connection that it comes over."""
    data = ConnectionIdentity(relayed_by=relayed_by)
    await old.add(0)
    late = old.batch(b"late")
    await old.end(commit=False)
    await old.add(0)
    assert await old.send(late, origin=CorrelatedOrigin(data, 1)) == 1
    with pytest.raises(ProducerFenced):
        younger = ConnectionIdentity(relayed_by=relayed_by)
        await old.send(old.batch(b"two"), origin=CorrelatedOrigin(younger, 1))
    await bench.broker.transactions.close()
    assert state(old) is TransactionState.ABORTED
    with pytest.raises(ProducerFenced):
        await old.end(commit=True)
    assert await bench.committed() == []


async def test_batches_by_several_brokers_are_not_late(bench: Bench, old: Client) -> None:
    """After an abort: the client sends to the leaders of the partitions, and each relays its requests."""
    await old.add(0, 1)
    await old.end(commit=False)
    await old.add(0, 1)
    ways = [ConnectionIdentity(), *(ConnectionIdentity(relayed_by=uuid4()) for _ in range(2))]
    for number, way in enumerate([*ways, *reversed(ways)]):
        await old.send(old.batch(str(number).encode()), origin=CorrelatedOrigin(way, number))
    await old.end()
    assert await bench.committed() == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_what_is_doubtful_is_never_committed(bench: Bench, old: Client) -> None:
    """Not even where the disk is full at the moment when it is to be given up."""
    await old.commit_offset(5)
    bench.ledger.failure = StorageFull("no space")
    with pytest.raises(ProducerFenced):
        await old.commit_offset(7, member=old.member(CorrelatedOrigin(ConnectionIdentity(), 1)))
    await bench.broker.transactions.close()
    bench.ledger.failure = None
    assert state(old) is TransactionState.ONGOING
    with pytest.raises(ProducerFenced):
        await old.end(commit=True)
    await bench.broker.transactions.abort_expired()
    assert state(old) is TransactionState.ABORTED


async def test_a_late_batch_after_the_right_one(bench: Bench, old: Client) -> None:
    older, data = ConnectionIdentity(), ConnectionIdentity()
    await old.add(0)
    late = old.batch(b"late")
    await old.end(commit=False)
    await old.add(0)
    old.sequences.clear()
    await old.send(old.batch(b"two"), origin=CorrelatedOrigin(data, 1))
    with pytest.raises(ProducerFenced):
        await old.send(late, origin=CorrelatedOrigin(older, 7))
    await old.end()
    assert await bench.committed() == [b"two"]


async def test_late_batches_of_the_newer_protocol(bench: Bench) -> None:
    new = Client(bench, "new", epoch_per_transaction=True)
    await new.init()
    late = new.batch(b"late")
    await new.end(commit=False)
    with pytest.raises(ProducerFenced):
        await new.send(late)
    await new.write(b"two")
    with pytest.raises(ProducerFenced):
        await new.send(late)
    await new.end()
    assert await bench.committed() == [b"two"]


async def test_late_offsets(bench: Bench, client: Client) -> None:
    await client.commit_offset(5)
    late = client.member()
    await client.end()
    await client.commit_offset(9)
    with pytest.raises(ProducerFenced):
        await client.commit_offset(5, member=late)
    await client.end()
    assert bench.offset_of("g") == 9


async def test_offsets_over_two_connections(bench: Bench, old: Client) -> None:
    """One of the two is late; nobody can say which."""
    await old.commit_offset(5)
    with pytest.raises(ProducerFenced):
        await old.commit_offset(7, member=old.member(CorrelatedOrigin(ConnectionIdentity(), 1)))
    await bench.broker.transactions.close()
    assert state(old) is TransactionState.ABORTED
    assert bench.offset_of("g") is None


async def test_offsets_of_a_group_that_has_no_part(bench: Bench, old: Client) -> None:
    await old.add(0)
    with pytest.raises(InvalidTransaction):
        await old.commit_offset(5, member=old.member())


async def test_a_batch_out_of_nowhere_does_not_open_a_gap(bench: Bench, old: Client) -> None:
    await finish_one(old)
    await old.add(0)
    old.sequences[0] += 1
    with pytest.raises(OutOfOrderSequence):
        await old.send(old.batch(b"x"))
