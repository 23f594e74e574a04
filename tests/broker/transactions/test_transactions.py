"""What a transaction promises: all of it or nothing, to those who read committed records."""

import asyncio

import pytest

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.transactions.coordinator import IDLE_MS
from posthouse.broker.transactions.transaction import MAX_EPOCH, ProducerIdentity, TransactionState
from posthouse.model.errors import (
    ConcurrentTransaction,
    InvalidRecord,
    InvalidTimeout,
    InvalidTransaction,
    OutOfOrderSequence,
    ProducerFenced,
    StorageFull,
    UnknownProducerId,
    UnknownTransaction,
)
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Settings
from posthouse.storage.operations import Append, Put
from posthouse.storage.spaces import Space
from tests.broker.transactions.producers import TIMEOUT_MS, Bench, Client

MAX_TIMEOUT_MS = Settings().transaction_max_timeout_ms


async def test_a_commit_shows_everything_at_once(bench: Bench, client: Client) -> None:
    await client.write(b"a", b"b")
    await client.write(b"c", partition=1)
    assert [await bench.committed(0), await bench.committed(1)] == [[], []]
    assert (bench.stable(0), bench.stable(1)) == (0, 0)
    await client.end(commit=True)
    assert [await bench.committed(0), await bench.committed(1)] == [[b"a", b"b"], [b"c"]]
    assert (bench.stable(0), bench.stable(1)) == (3, 2), "a marker takes an offset"


async def test_an_abort_shows_nothing(bench: Bench, client: Client) -> None:
    await client.write(b"no")
    await client.end(commit=False)
    await client.write(b"yes")
    await client.end(commit=True)
    assert await bench.committed() == [b"yes"]


async def test_markers_offsets_and_state_are_one_commit(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    await client.write(b"b", partition=1)
    await client.commit_offset(7)
    bench.ledger.commits.clear()
    await client.end(commit=True)
    [operations] = bench.ledger.commits
    assert sum(isinstance(each, Append) for each in operations) == 2
    spaces = [each.space for each in operations if isinstance(each, Put)]
    assert spaces == [Space.OFFSETS, Space.TRANSACTION_OFFSETS, Space.TRANSACTIONS]


async def test_an_open_transaction_holds_back_what_others_committed(bench: Bench, client: Client) -> None:
    slow = Client(bench, "slow", epoch_per_transaction=client.epoch_per_transaction)
    await slow.init()
    await slow.write(b"slow")
    await client.write(b"fast")
    await client.end(commit=True)
    assert await bench.committed() == []
    await slow.end(commit=False)
    assert await bench.committed() == [b"fast"]


async def test_offsets_are_those_of_committed_transactions(bench: Bench, client: Client) -> None:
    await client.commit_offset(5)
    assert bench.offset_of("g") is None
    assert bench.broker.groups.offsets.unstable("g", client.partition(0))  # type: ignore[arg-type]
    await client.end(commit=True)
    assert bench.offset_of("g") == 5
    assert not bench.broker.groups.offsets.unstable("g", client.partition(0))  # type: ignore[arg-type]
    await client.commit_offset(9)
    await client.end(commit=False)
    assert bench.offset_of("g") == 5


async def test_the_newer_protocol_changes_the_epoch_each_time(bench: Bench, client: Client) -> None:
    before = client.producer
    await client.write(b"a")
    after = await client.end(commit=True)
    assert after == (before.next_epoch if client.epoch_per_transaction else before)


async def test_told_twice_to_end_it_answers_twice(bench: Bench, client: Client) -> None:
    before = client.producer
    await client.write(b"a")
    answers = [await client.end(member=client.member(producer=before)) for _ in range(3)]
    assert len(set(answers)) == 1
    assert await bench.committed() == [b"a"]
    assert bench.stable() == 2, "one marker"


@pytest.mark.parametrize("first", [True, False], ids=["commit, then abort", "abort, then commit"])
async def test_a_decision_stands(bench: Bench, client: Client, first: bool) -> None:
    before = client.producer
    await client.write(b"a")
    await client.end(commit=first)
    with pytest.raises(InvalidTransaction):
        await client.end(commit=not first, member=client.member(producer=before))
    assert await bench.committed() == ([b"a"] if first else [])


async def test_nothing_to_commit(bench: Bench, client: Client) -> None:
    with pytest.raises(InvalidTransaction):
        await client.end(commit=True)


async def test_nothing_to_abort(bench: Bench, client: Client) -> None:
    """A client of the newer protocol does not know whether a batch that failed began a transaction."""
    before = client.producer
    if not client.epoch_per_transaction:
        with pytest.raises(InvalidTransaction):
            await client.end(commit=False)
        return
    assert await client.end(commit=False) == before.next_epoch
    with pytest.raises(ProducerFenced):
        await client.send(_batch_of(client, before))


def _batch_of(client: Client, producer: ProducerIdentity) -> bytearray:
    client.producer, now = producer, client.producer
    try:
        return client.batch(b"late")
    finally:
        client.producer = now


async def test_a_new_producer_fences_the_old_and_gives_up_its_transaction(
    bench: Bench, client: Client
) -> None:
    await client.write(b"lost")
    successor = Client(bench, client.id, epoch_per_transaction=client.epoch_per_transaction)
    assert await successor.init() == client.producer.next_epoch
    for action in (client.write(b"x"), client.end(commit=True), client.commit_offset(1)):
        with pytest.raises(ProducerFenced):
            await action
    await successor.write(b"kept")
    await successor.end(commit=True)
    assert await bench.committed() == [b"kept"]


async def test_a_transaction_that_takes_too_long(bench: Bench, client: Client) -> None:
    await client.write(b"slow")
    bench.clock.advance(TIMEOUT_MS / 1000 - 1)
    await bench.broker.transactions.abort_expired()
    assert bench.stable() == 0
    bench.clock.advance(1)
    await bench.broker.transactions.abort_expired()
    assert bench.stable() == 2
    with pytest.raises(InvalidTransaction if client.epoch_per_transaction else ProducerFenced):
        await client.end(commit=True)
    with pytest.raises(ProducerFenced):
        await client.send(client.batch(b"x"))
    assert await bench.committed() == []


@pytest.mark.parametrize("timeout", [0, -1, MAX_TIMEOUT_MS + 1])
async def test_timeouts_have_limits(bench: Bench, client: Client, timeout: int) -> None:
    with pytest.raises(InvalidTimeout):
        await client.init(timeout_ms=timeout)


async def test_a_producer_asks_for_its_next_epoch(bench: Bench, client: Client) -> None:
    before = client.producer
    assert await client.init(again=True) == before.next_epoch
    client.producer = before
    assert await client.init(again=True) == before.next_epoch, "it had not heard the answer"
    await client.write(b"a")
    client.producer = before
    with pytest.raises(ProducerFenced):
        await client.init(again=True)


async def test_producers_take_turns(bench: Bench, client: Client) -> None:
    """With connections of any age: a producer is new when it says so."""
    other = Client(bench, client.id, epoch_per_transaction=client.epoch_per_transaction)
    for each in (other, client, other):
        await each.init()
        await each.write(b"x")
        await each.end(commit=True)
    assert await bench.committed() == [b"x"] * 3


async def test_somebody_else_has_taken_over_meanwhile(bench: Bench, client: Client) -> None:
    await Client(bench, client.id, epoch_per_transaction=client.epoch_per_transaction).init()
    with pytest.raises(ProducerFenced):
        await client.init(again=True)


async def test_epochs_run_out(bench: Bench, client: Client) -> None:
    bench.broker.transactions.ids.get(client.id).producer = ProducerIdentity(
        client.producer.producer_id, MAX_EPOCH
    )
    client.producer = ProducerIdentity(client.producer.producer_id, MAX_EPOCH)
    await client.write(b"a")
    before = client.producer
    after = await client.end(commit=True)
    assert await client.end(commit=True, member=client.member(producer=before)) == after
    if not client.epoch_per_transaction:
        after = await client.init(again=True)
    assert after.epoch == 0
    assert after.producer_id != before.producer_id
    known = bench.storage.producers(client.partition(0))[before.producer_id]
    assert known.epoch == (MAX_EPOCH + 1 if client.epoch_per_transaction else MAX_EPOCH), (
        "the old one is fenced"
    )
    await client.write(b"b")
    await client.end(commit=True)
    assert await bench.committed() == [b"a", b"b"]


async def test_the_last_epoch_can_only_fence(bench: Bench, client: Client) -> None:
    transaction = bench.broker.transactions.ids.get(client.id)
    transaction.producer = client.producer = ProducerIdentity(client.producer.producer_id, MAX_EPOCH)
    await client.write(b"a")
    bench.clock.advance(TIMEOUT_MS / 1000)
    await bench.broker.transactions.abort_expired()
    client.producer = client.producer.next_epoch
    with pytest.raises(ProducerFenced):
        await client.send(client.batch(b"x"))
    assert (await client.init()).epoch == 0


async def test_who_comes_while_it_ends_has_to_come_again(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    member = client.member()
    ending = asyncio.ensure_future(bench.broker.transactions.end(member, commit=True))
    bench.ledger.mute = True
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for action in (
        client.end(commit=True),
        client.send(client.batch(b"x")),
        client.commit_offset(1, member=client.member()),
        client.init(),
    ):
        with pytest.raises(ConcurrentTransaction):
            await action
    ending.cancel()


async def test_two_first_producers(bench: Bench) -> None:
    bench.ledger.mute = True
    first = asyncio.ensure_future(bench.broker.transactions.init_producer("new", TIMEOUT_MS))
    await asyncio.sleep(0)
    with pytest.raises(ConcurrentTransaction):
        await bench.broker.transactions.init_producer("new", TIMEOUT_MS)
    first.cancel()


async def test_strangers(bench: Bench, client: Client) -> None:
    unknown = Client(bench, "unknown", epoch_per_transaction=client.epoch_per_transaction)
    with pytest.raises(UnknownProducerId):
        await unknown.end()
    with pytest.raises(UnknownTransaction):
        bench.broker.transactions.ids.get("unknown")
    other = client.member(producer=ProducerIdentity(client.producer.producer_id + 1, 0))
    with pytest.raises(UnknownProducerId):
        await client.end(member=other)


async def test_a_batch_outside_of_any_transaction(bench: Bench, client: Client) -> None:
    """It would mix with the transaction's, and nobody could tell which sequence comes next."""
    with pytest.raises(InvalidTransaction):
        await client.send(client.batch(b"x", transactional=False))


async def test_a_transactional_batch_without_its_id(bench: Bench, client: Client) -> None:
    produced = Produced(bench.topic, 0, memoryview(client.batch(b"x")))
    [result] = await bench.broker.append([produced]).wait()
    assert isinstance(result, InvalidTransaction)


async def test_sequences_hold_within_a_transaction(bench: Bench, client: Client) -> None:
    first, skipped = client.batch(b"a"), client.batch(b"b")
    later = client.batch(b"c")
    if not client.epoch_per_transaction:
        await client.add(0)
    assert await client.send(first) == 0
    with pytest.raises(OutOfOrderSequence):
        await client.send(later)
    assert await client.send(first) == 0, "it is there already"
    assert [await client.send(skipped), await client.send(later)] == [1, 2]
    await client.end(commit=True)
    assert await bench.committed() == [b"a", b"b", b"c"]


async def test_a_partition_is_named_once(bench: Bench) -> None:
    builder = BatchBuilder()
    builder.add(None, b"x", timestamp=bench.clock.now_ms())
    batches = [Produced(bench.topic, index, memoryview(builder.build())) for index in (0, 1, 0)]
    first, second, third = await bench.broker.append(batches).wait()
    assert isinstance(first, Appended) and isinstance(second, Appended)
    assert isinstance(third, InvalidRecord)


async def test_a_full_disk_leaves_the_transaction_open(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    await client.commit_offset(3)
    bench.ledger.failure = StorageFull("no space")
    with pytest.raises(StorageFull):
        await client.end(commit=True)
    bench.ledger.failure = None
    assert bench.broker.transactions.ids.get(client.id).state is TransactionState.ONGOING
    await client.end(commit=True)
    assert await bench.committed() == [b"a"]
    assert bench.offset_of("g") == 3


async def test_what_was_not_stored_is_stored_with_the_next(bench: Bench, client: Client) -> None:
    """A partition whose admission got lost is still one that a restart must know of."""
    bench.ledger.failure = StorageFull("no space")
    with pytest.raises(StorageFull):
        await client.write(b"a")
    bench.ledger.failure = None
    client.sequences.clear()
    await client.send(client.batch(b"a"))
    await bench.crash()
    assert bench.broker.transactions.ids.get(client.id).state is TransactionState.ONGOING
    bench.clock.advance(TIMEOUT_MS / 1000)
    await bench.broker.transactions.abort_expired()
    assert bench.stable() == 2


async def test_a_topic_that_is_deleted_meanwhile(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    await bench.broker.delete_topics([bench.topic])
    await client.end(commit=True)
    assert bench.broker.transactions.ids.get(client.id).state is TransactionState.COMMITTED


async def test_ids_that_nobody_uses_are_forgotten(bench: Bench, client: Client) -> None:
    busy = Client(bench, "busy", epoch_per_transaction=client.epoch_per_transaction)
    await busy.init(timeout_ms=MAX_TIMEOUT_MS)
    await busy.write(b"x")
    bench.clock.advance(IDLE_MS / 1000 + 1)
    await bench.broker.transactions.expire()
    assert [each.id for each in bench.broker.transactions.ids.all()] == ["busy"]
    with pytest.raises(UnknownProducerId):
        await client.write(b"x")
    await client.init(again=True)
    await client.write(b"x")


async def test_a_client_that_leaves_does_not_stop_what_it_began(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    await client.commit_offset(4)
    bench.ledger.mute = True
    ending = asyncio.ensure_future(client.end(commit=True))
    for _ in range(3):
        await asyncio.sleep(0)
    ending.cancel()
    await asyncio.sleep(0)
    bench.ledger.speak()
    await bench.broker.transactions.close()
    assert await bench.committed() == [b"a"]
    assert bench.offset_of("g") == 4
    assert bench.broker.transactions.ids.get(client.id).state is TransactionState.COMMITTED


async def test_an_administrator_gives_it_up(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    transactions = bench.broker.transactions
    with pytest.raises(ProducerFenced):
        await transactions.abort(client.producer.next_epoch, client.partition(0))
    await transactions.abort(client.producer, client.partition(0))
    assert bench.stable() == 2
    assert await bench.committed() == []
    with pytest.raises(ProducerFenced):
        await client.end(commit=True)
