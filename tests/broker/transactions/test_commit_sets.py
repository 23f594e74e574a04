"""Several transactions that end together, and the number that is remembered with them."""

import asyncio
from pathlib import Path

import pytest

from posthouse.broker.transactions.commit_sequences import CommitSequences
from posthouse.broker.transactions.commit_sets import CommitPart
from posthouse.broker.transactions.transaction import MAX_EPOCH, ProducerIdentity, TransactionState
from posthouse.model.errors import (
    ConcurrentTransaction,
    DataDamaged,
    InvalidTransaction,
    ProducerFenced,
    StorageFull,
    UnknownProducerId,
)
from posthouse.records.batch import parse_header
from posthouse.storage.operations import Append, Put
from posthouse.storage.spaces import Space
from tests.broker.transactions.producers import TIMEOUT_MS, Bench, Client
from tests.broker.transactions.test_restart import KILLED, Files

NAME = "query"


async def writer(
    bench: Bench, number: int | str, *values: bytes, partition: int = 0, name: str = NAME
) -> Client:
    """A producer under the name with an open transaction, if it is given values."""
    made = Client(bench, f"{name}/{number}", epoch_per_transaction=True)
    await made.init()
    if values:
        await made.write(*values, partition=partition)
    return made


def part(client: Client) -> CommitPart:
    return CommitPart(id=client.id, producer=client.producer)


async def commit(bench: Bench, sequence: int | None, *clients: Client, name: str = NAME) -> bool:
    return await bench.broker.transactions.commit_sets.commit(
        name, sequence, [part(each) for each in clients]
    )


async def abort(bench: Bench, *clients: Client) -> None:
    await bench.broker.transactions.commit_sets.abort(NAME, [part(each) for each in clients])


def sequence(bench: Bench, name: str = NAME) -> int | None:
    return bench.broker.transactions.commit_sets.sequence(name)


def state(client: Client) -> TransactionState:
    return client.bench.broker.transactions.ids.get(client.id).state


async def test_all_and_the_number_are_one_commit(bench: Bench) -> None:
    one = await writer(bench, 0, b"a")
    two = await writer(bench, 1, b"b")
    await two.write(b"c", partition=1)
    await two.commit_offset(5)
    before = len(bench.ledger.commits)
    assert await commit(bench, 0, one, two)
    [operations] = bench.ledger.commits[before:]
    assert len([each for each in operations if isinstance(each, Append)]) == 3
    assert [each.key for each in operations if isinstance(each, Put) and each.space is Space.FENCES] == [
        b"query"
    ]
    assert (await bench.committed(0), await bench.committed(1)) == ([b"a", b"b"], [b"c"])
    assert bench.offset_of("g") == 5
    assert sequence(bench) == 0
    assert not bench.broker.transactions.ids.open()


async def test_asked_again_it_was_committed_before(bench: Bench) -> None:
    one = await writer(bench, 0, b"a")
    assert await commit(bench, 7, one)
    before = len(bench.ledger.commits)
    assert not await commit(bench, 7, one)
    assert len(bench.ledger.commits) == before, "nothing is left to do"
    assert await bench.committed() == [b"a"]


@pytest.mark.parametrize("repeated", [6, 7])
async def test_a_repetition_is_given_up(bench: Bench, repeated: int) -> None:
    assert await commit(bench, 7, await writer(bench, 0, b"a"))
    again = await writer(bench, 0, b"a")
    assert not await commit(bench, repeated, again)
    assert state(again) is TransactionState.ABORTED
    assert (await bench.committed(), bench.stable(), sequence(bench)) == ([b"a"], 4, 7)
    with pytest.raises(ProducerFenced):
        await again.write(b"late")


async def test_a_late_repetition_does_not_touch_what_goes_on(bench: Bench) -> None:
    first = await writer(bench, 0, b"a")
    late = part(first)
    assert await commit(bench, 1, first)
    following = await writer(bench, 0, b"b")
    assert not await bench.broker.transactions.commit_sets.commit(NAME, 1, [late])
    assert await commit(bench, 2, following)
    assert await bench.committed() == [b"a", b"b"]


async def test_the_name_is_the_fence(bench: Bench) -> None:
    assert await commit(bench, 3, await writer(bench, 0, b"a"))
    assert await commit(bench, 0, await writer(bench, 0, b"b", name="other"), name="other")
    assert (sequence(bench), sequence(bench, "other"), sequence(bench, "third")) == (3, 0, None)
    assert await bench.committed() == [b"a", b"b"]


async def test_a_number_without_work(bench: Bench) -> None:
    assert await commit(bench, 0)
    assert not await commit(bench, 0)
    assert sequence(bench) == 0


@pytest.mark.parametrize("how", ["fenced", "another producer", "nothing open", "unknown", "timed out"])
async def test_one_that_cannot_commit_stops_all(bench: Bench, how: str) -> None:
    good = await writer(bench, 0, b"a")
    bad = await writer(bench, 1, *([] if how == "nothing open" else [b"b"]))
    error: type[Exception] = ProducerFenced
    if how == "fenced":
        await writer(bench, 1, b"c")
    elif how == "another producer":
        bad.producer = ProducerIdentity(bad.producer.producer_id + 1, bad.producer.epoch)
    elif how == "nothing open":
        error = InvalidTransaction
    elif how == "unknown":
        bad.id, error = f"{NAME}/99", UnknownProducerId
    else:
        bench.clock.advance(TIMEOUT_MS / 1000)
        await good.init()
        await good.write(b"again")
        await bench.broker.transactions.abort_expired()
    with pytest.raises(error):
        await commit(bench, 0, good, bad)
    assert (await bench.committed(), sequence(bench)) == ([], None)
    assert state(good) is TransactionState.ONGOING
    assert await commit(bench, 0, good), "the others can still be committed"


async def test_writers_that_were_lost_are_fenced(bench: Bench) -> None:
    lost = await writer(bench, "0.0", b"lost", partition=1)
    asleep = await writer(bench, "1.0")
    alien = await writer(bench, 0, b"alien", name=f"{NAME}/0")
    good = await writer(bench, "0.1", b"a")
    before = len(bench.ledger.commits)
    assert await commit(bench, 0, good)
    assert len(bench.ledger.commits) == before + 1, "in the same step"
    assert (state(lost), bench.stable(1), await bench.committed(1)) == (TransactionState.ABORTED, 2, [])
    for each in (lost, asleep):
        with pytest.raises(ProducerFenced):
            await each.write(b"late")
    assert state(alien) is TransactionState.ONGOING, "a name is not that of another that begins like it"


async def test_without_a_number_the_transactions_tell(bench: Bench) -> None:
    one, two = await writer(bench, 0, b"a"), await writer(bench, 1, b"b")
    assert await commit(bench, None, one, two)
    assert not await commit(bench, None, one, two)
    assert (await bench.committed(), sequence(bench)) == ([b"a", b"b"], None)
    assert await commit(bench, None, await writer(bench, 0, b"c"))
    with pytest.raises(ProducerFenced):
        await commit(bench, None, one, two)
    assert await bench.committed() == [b"a", b"b", b"c"]


async def test_abort(bench: Bench) -> None:
    one, two = await writer(bench, 0, b"a"), await writer(bench, 1, b"b")
    before = len(bench.ledger.commits)
    await abort(bench, one, two)
    assert len(bench.ledger.commits) == before + 1
    await abort(bench, one, two)
    assert (await bench.committed(), bench.stable()) == ([], 4)
    following = await writer(bench, 0, b"c")
    await abort(bench, one, await writer(bench, 7))
    assert state(following) is TransactionState.ONGOING
    with pytest.raises(ProducerFenced):
        await commit(bench, 0, one, two)


async def test_abort_whatever_is_open(bench: Bench) -> None:
    lost, alien = await writer(bench, 0, b"a"), await writer(bench, 0, b"b", name="other")
    asleep = await writer(bench, 1)
    await bench.broker.transactions.commit_sets.abort(NAME, None)
    assert (state(lost), state(alien)) == (TransactionState.ABORTED, TransactionState.ONGOING)
    with pytest.raises(ProducerFenced):
        await asleep.write(b"late")


async def test_a_late_abort_does_not_touch_what_goes_on(bench: Bench) -> None:
    await commit(bench, 4, await writer(bench, 0, b"a"))
    following = await writer(bench, 0, b"b")
    await bench.broker.transactions.commit_sets.abort(NAME, None, 4)
    assert state(following) is TransactionState.ONGOING
    await bench.broker.transactions.commit_sets.abort(NAME, None, 5)
    assert state(following) is TransactionState.ABORTED


@pytest.mark.parametrize(
    "id",
    ["query", "query/", "other/0", "query/x", "query/1/2", "query0", "query/1.2.3", "query/-1", "query/٣"],
)
async def test_ids_belong_to_the_name(bench: Bench, id: str) -> None:
    stranger = Client(bench, id, epoch_per_transaction=True)
    await stranger.init()
    await stranger.write(b"x")
    with pytest.raises(InvalidTransaction, match="does not belong"):
        await commit(bench, 0, stranger)
    with pytest.raises(InvalidTransaction, match="does not belong"):
        await abort(bench, stranger)
    assert state(stranger) is TransactionState.ONGOING


async def test_what_makes_no_sense(bench: Bench) -> None:
    one = await writer(bench, 0, b"a")
    with pytest.raises(InvalidTransaction, match="twice"):
        await commit(bench, 0, one, one)
    for name in ("", "x" * 250):
        with pytest.raises(InvalidTransaction, match="1 to 249 characters"):
            await commit(bench, 0, name=name)


async def test_one_at_a_time(bench: Bench) -> None:
    one, two = await writer(bench, 0, b"a"), await writer(bench, 1, b"b")
    bench.ledger.mute = True
    first = asyncio.create_task(commit(bench, 0, one))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for again in (one, two):
        with pytest.raises(ConcurrentTransaction):
            await commit(bench, 0, again)
    with pytest.raises(ConcurrentTransaction):
        await abort(bench, one)
    assert sequence(bench) is None, "known when it is durable"
    bench.ledger.speak()
    assert await first
    assert sequence(bench) == 0


async def test_a_client_that_goes_away_stops_nothing(bench: Bench) -> None:
    one = await writer(bench, 0, b"a")
    bench.ledger.mute = True
    asking = asyncio.create_task(commit(bench, 0, one))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    bench.ledger.speak()
    await bench.broker.transactions.close()
    assert (await bench.committed(), sequence(bench)) == ([b"a"], 0)


async def test_a_full_disk_is_no_commit(bench: Bench) -> None:
    one = await writer(bench, 0, b"a")
    bench.ledger.failure = StorageFull("no space left")
    with pytest.raises(StorageFull):
        await commit(bench, 0, one)
    assert (await bench.committed(), sequence(bench)) == ([], None)
    bench.ledger.failure = None
    assert await commit(bench, 0, one)
    assert await bench.committed() == [b"a"]


async def test_a_partition_that_knows_a_later_epoch_gets_no_marker(bench: Bench) -> None:
    """It has never taken a record of this transaction, and must not stop the others."""
    one, two = await writer(bench, 0, b"a"), await writer(bench, 1, b"b")
    later = Client(bench, one.id, epoch_per_transaction=True)
    later.producer = ProducerIdentity(one.producer.producer_id, one.producer.epoch + 5)
    batch = memoryview(later.batch(b"x", partition=1, transactional=False))
    await bench.storage.commit([Append(one.partition(1), batch, parse_header(batch))])
    bench.broker.transactions.ids.get(one.id).work.partitions.add(one.partition(1))  # type: ignore[union-attr]
    assert await commit(bench, 0, one, two)
    assert (await bench.committed(0), await bench.committed(1)) == ([b"a", b"b"], [b"x"])


async def test_a_topic_that_is_gone_stops_nothing(bench: Bench) -> None:
    one = await writer(bench, 0, b"a")
    await bench.broker.delete_topics([bench.topic])
    assert await commit(bench, 0, one)
    assert sequence(bench) == 0


async def test_the_last_epoch_is_followed_by_a_new_producer(bench: Bench) -> None:
    one = await writer(bench, 0)
    bench.broker.transactions.ids.get(one.id).producer = one.producer = ProducerIdentity(
        one.producer.producer_id, MAX_EPOCH
    )
    await one.write(b"a")
    assert await commit(bench, 0, one)
    after = bench.broker.transactions.ids.get(one.id).producer
    assert after.producer_id != one.producer.producer_id
    assert (after.epoch, await bench.committed()) == (0, [b"a"])


async def test_a_crash_before_it_is_durable(bench: Bench) -> None:
    one, two = await writer(bench, 0, b"a"), await writer(bench, 1, b"b")
    bench.ledger.dead = True
    await bench.give_up(commit(bench, 0, one, two))
    await bench.crash()
    assert (await bench.committed(), sequence(bench)) == ([], None)
    assert await commit(bench, 0, one, two), "asked again, it commits"
    assert await bench.committed() == [b"a", b"b"]


async def test_a_crash_after_it_is_durable(bench: Bench) -> None:
    one, two = await writer(bench, 0, b"a"), await writer(bench, 1, b"b")
    bench.ledger.mute = True
    await bench.give_up(commit(bench, 0, one, two))
    await bench.crash()
    assert (await bench.committed(), sequence(bench)) == ([b"a", b"b"], 0)
    assert not await commit(bench, 0, one, two)
    assert await bench.committed() == [b"a", b"b"]


@KILLED
async def test_over_a_restart_on_files(tmp_path: Path, killed: bool) -> None:
    files = Files(tmp_path / "data")
    bench = await files.start()
    writers = [await writer(bench, number, b"%d" % number, partition=number % 2) for number in range(6)]
    assert await commit(bench, 4, *writers)
    lost = await writer(bench, 0, b"open")
    bench = await files.again(killed=killed)
    assert sequence(bench) == 4
    assert (await bench.committed(0), await bench.committed(1)) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])
    lost.bench = bench
    assert not await commit(bench, 4, lost)
    assert bench.stable(0) == 8
    assert await commit(bench, 5, await writer(bench, 0, b"next"))
    bench = await files.again(killed=killed)
    assert (sequence(bench), await bench.committed(0)) == (5, [b"0", b"2", b"4", b"next"])
    await files.stop()


async def test_an_unknown_form_is_not_guessed(bench: Bench) -> None:
    with pytest.raises(DataDamaged, match="not known here"):
        CommitSequences().load({b"q": bytes((9, *bytes(8)))})
