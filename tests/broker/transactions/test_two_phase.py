"""Two-phase commits: what was prepared stays so until its owner decides, whatever crashes in between."""

from pathlib import Path

import pytest

from posthouse.broker.transactions.coordinator import IDLE_MS
from posthouse.broker.transactions.transaction import (
    MAX_EPOCH,
    NO_PRODUCER,
    ProducerIdentity,
    Transaction,
    TransactionState,
    Work,
    decode_transaction,
)
from posthouse.model.errors import (
    DataDamaged,
    InvalidTransaction,
    ProducerFenced,
    UnknownTransaction,
)
from posthouse.model.ids import PartitionId, new_topic_id
from tests.broker.transactions.producers import TIMEOUT_MS, Bench, Client
from tests.broker.transactions.test_restart import Files

DECISIONS = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest.fixture
async def owner(bench: Bench, client: Client) -> Client:
    await client.init(two_phase=True)
    return client


def successor(client: Client) -> Client:
    """Another process of the same owner."""
    return Client(client.bench, client.id, epoch_per_transaction=client.epoch_per_transaction)


def transaction(bench: Bench, client: Client) -> Transaction:
    return bench.broker.transactions.ids.get(client.id)


async def wait_long(bench: Bench) -> None:
    bench.clock.advance(30 * 24 * 3600)
    await bench.broker.transactions.abort_expired()
    await bench.broker.transactions.expire()


async def test_a_two_phase_transaction_has_no_timeout(bench: Bench, owner: Client) -> None:
    ordinary = Client(bench, "ordinary", epoch_per_transaction=owner.epoch_per_transaction)
    await ordinary.init()
    await owner.write(b"a")
    await ordinary.write(b"b", partition=1)
    await wait_long(bench)
    assert (bench.stable(0), bench.stable(1)) == (0, 2), "only the ordinary one is aborted"
    await owner.end(commit=True)
    assert await bench.committed() == [b"a"]


@DECISIONS
async def test_a_successor_decides(bench: Bench, owner: Client, commit: bool) -> None:
    await owner.write(b"a")
    await owner.write(b"b", partition=1)
    await owner.commit_offset(7)
    written = owner.producer
    other = successor(owner)
    assert await other.resume() == written
    assert other.producer == written.next_epoch
    assert transaction(bench, owner).state is TransactionState.PREPARED
    assert len(bench.broker.transactions.ids.prepared_since()) == 1
    assert (bench.stable(0), bench.offset_of("g")) == (0, None)
    await other.end(commit=commit)
    assert [await bench.committed(0), await bench.committed(1)] == ([[b"a"], [b"b"]] if commit else [[], []])
    assert (bench.stable(0), bench.stable(1)) == (2, 2)
    assert bench.offset_of("g") == (7 if commit else None)


async def test_who_wrote_it_is_fenced(bench: Bench, owner: Client) -> None:
    await owner.write(b"a")
    late = owner.batch(b"late")
    await successor(owner).resume()
    with pytest.raises(ProducerFenced):
        await owner.send(late)
    with pytest.raises(ProducerFenced):
        await owner.end(commit=False)
    assert transaction(bench, owner).state is TransactionState.PREPARED


async def test_nothing_is_added_before_the_decision(bench: Bench, owner: Client) -> None:
    await owner.write(b"a")
    other = successor(owner)
    await other.resume()
    for adding in (other.add(1), other.send(other.batch(b"b")), other.commit_offset(3)):
        with pytest.raises(InvalidTransaction, match="prepared"):
            await adding
    await other.end(commit=True)
    other.sequences.clear()  # of what was refused
    await other.write(b"next")
    await other.end(commit=True)
    assert await bench.committed() == [b"a", b"next"]
    assert await bench.committed(1) == []


@DECISIONS
async def test_any_number_of_crashes_before_the_decision(bench: Bench, owner: Client, commit: bool) -> None:
    await owner.write(b"a")
    await owner.commit_offset(7)
    written = owner.producer
    seen = set()
    for _ in range(3):
        await bench.crash()
        await wait_long(bench)
        other = successor(owner)
        assert await other.resume() == written
        seen.add(other.producer)
    assert len(seen) == 3, "each one fences the one before"
    await bench.crash()
    await other.end(commit=commit)
    assert await bench.committed() == ([b"a"] if commit else [])
    assert (bench.stable(), bench.offset_of("g")) == (2, 7 if commit else None)
    assert await successor(owner).resume() is None, "nothing is left to decide"


async def test_crashes_while_it_is_prepared(bench: Bench, owner: Client) -> None:
    await owner.write(b"a")
    written = owner.producer
    bench.ledger.dead = True
    await bench.give_up(successor(owner).resume())
    await bench.crash()
    assert transaction(bench, owner).state is TransactionState.ONGOING
    bench.ledger.mute = True
    await bench.give_up(successor(owner).resume())
    await bench.crash()
    assert transaction(bench, owner).state is TransactionState.PREPARED
    other = successor(owner)
    assert await other.resume() == written
    await other.end(commit=True)
    assert await bench.committed() == [b"a"]


@DECISIONS
async def test_crashes_while_it_is_decided(bench: Bench, owner: Client, commit: bool) -> None:
    await owner.write(b"a")
    other = successor(owner)
    await other.resume()
    bench.ledger.dead = True
    await bench.give_up(other.end(commit=commit))
    await bench.crash()
    assert transaction(bench, owner).state is TransactionState.PREPARED
    deciding = other.member()
    bench.ledger.mute = True
    await bench.give_up(other.end(commit=commit, member=deciding))
    await bench.crash()
    other.lose_connection()
    await other.end(commit=commit)
    assert await bench.committed() == ([b"a"] if commit else [])


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@DECISIONS
async def test_it_stays_prepared_over_restarts_on_files(tmp_path: Path, killed: bool, commit: bool) -> None:
    files = Files(tmp_path / "data")
    bench = await files.start()
    owner = Client(bench, epoch_per_transaction=True)
    await owner.init(two_phase=True)
    await owner.write(b"a")
    written = owner.producer
    for _ in range(2):
        owner.bench = await files.again(killed=killed)
        await wait_long(owner.bench)
        other = successor(owner)
        assert await other.resume() == written
    other.bench = bench = await files.again(killed=killed)
    assert transaction(bench, owner).owner == "ann"
    await other.end(commit=commit)
    assert await bench.committed() == ([b"a"] if commit else [])
    await files.stop()


async def test_its_own_producer_prepares_it(bench: Bench, client: Client) -> None:
    """An ordinary producer may time out until it has prepared its transaction, and not after that."""
    await client.write(b"a")
    written = client.producer
    assert await client.resume(expected=written) == written
    assert await client.resume(expected=written) == written, "the answer was lost"
    await wait_long(bench)
    await client.end(commit=True)
    assert await bench.committed() == [b"a"]


async def test_one_that_has_timed_out_cannot_be_prepared(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    bench.clock.advance(TIMEOUT_MS / 1000)
    await bench.broker.transactions.abort_expired()
    assert await client.resume(expected=client.producer) is None
    assert await bench.committed() == []


async def test_one_that_was_prepared_without_two_phase_has_its_timeout(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    assert await client.resume(two_phase=False) is not None
    bench.clock.advance(TIMEOUT_MS / 1000)
    await bench.broker.transactions.abort_expired()
    assert (await bench.committed(), bench.stable()) == ([], 2)


async def test_a_stale_producer_prepares_nothing(bench: Bench, owner: Client) -> None:
    await owner.write(b"a")
    stale = owner.producer
    await successor(owner).resume()
    with pytest.raises(ProducerFenced):
        await owner.resume(expected=stale)


async def test_init_without_keeping_aborts_it(bench: Bench, owner: Client) -> None:
    await owner.write(b"a")
    await successor(owner).resume()
    other = successor(owner)
    await other.init()
    assert (await bench.committed(), bench.stable()) == ([], 2)
    assert not transaction(bench, owner).is_two_phase


async def test_an_id_without_a_producer_has_nothing_to_decide(bench: Bench) -> None:
    new = Client(bench, "new", epoch_per_transaction=True)
    assert await new.resume() is None
    await new.write(b"a")
    await new.end(commit=True)
    assert await bench.committed() == [b"a"]


async def test_epochs_that_are_used_up(bench: Bench, owner: Client) -> None:
    """Its successors get another producer id; the records and their markers keep theirs."""
    last = ProducerIdentity(owner.producer.producer_id, MAX_EPOCH)
    transaction(bench, owner).producer = owner.producer = last
    await owner.write(b"a")
    other = successor(owner)
    assert await other.resume() == last
    assert other.producer.producer_id != last.producer_id
    await bench.crash()
    later = successor(owner)
    assert await later.resume() == last
    assert bench.broker.transactions.ids.owns(last.producer_id)
    await later.end(commit=True)
    assert (await bench.committed(), bench.stable()) == ([b"a"], 2)
    await later.write(b"b")
    await later.end(commit=True)
    assert await bench.committed() == [b"a", b"b"]


@DECISIONS
async def test_an_operator_decides(bench: Bench, owner: Client, commit: bool) -> None:
    await owner.write(b"a")
    other = successor(owner)
    written = await other.resume()
    assert written is not None
    transactions = bench.broker.transactions
    decide = transactions.commit_open if commit else transactions.abort_open
    with pytest.raises(InvalidTransaction, match="another one"):
        await decide(owner.id, written.next_epoch)
    await decide(owner.id, written)
    assert (await bench.committed(), bench.stable()) == ([b"a"] if commit else [], 2)
    with pytest.raises(InvalidTransaction, match="no open transaction"):
        await decide(owner.id)


@DECISIONS
async def test_an_owner_hears_of_the_operators_decision(bench: Bench, commit: bool) -> None:
    owner = Client(bench, epoch_per_transaction=True)
    await owner.init(two_phase=True)
    await owner.write(b"a")
    await owner.resume(expected=owner.producer)
    transactions = bench.broker.transactions
    await (transactions.commit_open if commit else transactions.abort_open)(owner.id)
    with pytest.raises(InvalidTransaction, match="the other result"):
        await owner.end(commit=not commit)
    await owner.end(commit=commit)
    assert await bench.committed() == ([b"a"] if commit else [])


async def test_an_operator_commits_no_ordinary_transaction(bench: Bench, client: Client) -> None:
    await client.write(b"half of it")
    with pytest.raises(InvalidTransaction, match="no two-phase commit"):
        await bench.broker.transactions.commit_open(client.id)
    with pytest.raises(UnknownTransaction):
        await bench.broker.transactions.commit_open("unknown")
    await client.end(commit=True)


async def test_markers_from_outside_abort_it_by_the_identity_of_its_records(
    bench: Bench, owner: Client
) -> None:
    await owner.write(b"a")
    other = successor(owner)
    written = await other.resume()
    assert written is not None
    place = owner.partition(0)
    with pytest.raises(ProducerFenced):
        await bench.broker.transactions.abort(other.producer, place)
    assert await bench.broker.transactions.owner_of(written) == owner.id
    await bench.broker.transactions.abort(written, place)
    assert (await bench.committed(), bench.stable()) == ([], 2)


async def test_an_owner_hears_of_markers_from_outside(bench: Bench) -> None:
    owner = Client(bench, epoch_per_transaction=True)
    await owner.init(two_phase=True)
    await owner.write(b"a")
    written = await owner.resume(expected=owner.producer)
    assert written is not None
    await bench.broker.transactions.abort(written, owner.partition(0))
    with pytest.raises(InvalidTransaction, match="the other result"):
        await owner.end(commit=True)
    await owner.end(commit=False)
    assert await bench.committed() == []


async def test_two_connections_do_not_end_it(bench: Bench) -> None:
    """An ordinary transaction is aborted, because it is unclear which request is right."""
    owner = Client(bench, epoch_per_transaction=False)
    await owner.init(two_phase=True)
    await owner.write(b"a")
    first = owner.session
    owner.connect()
    with pytest.raises(ProducerFenced):
        await owner.end(commit=True)
    await wait_long(bench)
    assert bench.stable() == 0
    first.is_open = False
    await owner.end(commit=True)
    assert await bench.committed() == [b"a"]


async def test_commit_sets_leave_it_alone(bench: Bench) -> None:
    owner = Client(bench, "job/1", epoch_per_transaction=True)
    await owner.init(two_phase=True)
    await owner.write(b"a")
    await bench.broker.transactions.commit_sets.abort("job", None)
    await bench.broker.transactions.commit_sets.commit("job", 1, [])
    await owner.end(commit=True)
    assert await bench.committed() == [b"a"]


async def test_an_unused_id_is_forgotten(bench: Bench, owner: Client) -> None:
    await owner.write(b"a")
    await owner.end(commit=True)
    bench.clock.advance(IDLE_MS / 1000 + 1)
    await bench.broker.transactions.expire()
    assert bench.broker.transactions.ids.find(owner.id) is None


def test_the_stored_form() -> None:
    place = PartitionId(new_topic_id(), 3)
    made = Transaction(
        id="tx",
        producer=ProducerIdentity(7, 2),
        timeout_ms=1000,
        changed_ms=5,
        is_two_phase=True,
        owner="zoë",
        work=Work(4, {place}, {place}, prepared=ProducerIdentity(7, 1)),
    )
    put = made.put()
    assert put.value is not None
    read = decode_transaction(put.key, put.value)
    assert (read.owner, read.is_two_phase, read.state) == ("zoë", True, TransactionState.PREPARED)
    assert (read.writer, read.producer, read.previous) == (ProducerIdentity(7, 1), made.producer, NO_PRODUCER)
    assert read.work is not None and read.work.partitions == {place}
    for cut in range(len(put.value)):
        with pytest.raises(DataDamaged):
            decode_transaction(put.key, put.value[:cut])
    made.is_two_phase, made.work = False, None
    value = made.put().value
    assert value is not None and value[0] == 1, "ordinary ones have the form that older brokers read"
