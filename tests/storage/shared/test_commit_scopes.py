"""Which scopes a commit needs, and that a broker without them is refused."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.routing.encoding import exchange_key
from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import (
    COORDINATOR,
    GROUPS,
    HOUSEKEEPING,
    NAMESPACES,
    TRANSACTIONS,
    Scope,
    scope_of_group,
    scope_of_job,
    scope_of_namespace,
    scope_of_transactional_id,
)
from posthouse.records.batch import parse_header
from posthouse.records.control import build_marker
from posthouse.storage.operations import Append, Operation, Put, Refer, Run, Trim
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.commits import committer
from posthouse.storage.shared.commits.commit_scopes import scopes_of
from posthouse.storage.shared.database import Database, LeaseLost, ScopeNeeded
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.members import Member
from tests.storage.shared.opened import make_member, make_shared, serve, take_lease
from tests.storage.shared.test_admissions import batch as admitted_batch
from tests.storage.shared.test_commits_of_members import numbered

TOPIC = make_topic(partitions=2)
PARTITION, OTHER = TOPIC.partition_ids()
ORDERS, MAILS = scope_of_group("orders"), scope_of_group("mails")
JOB = scope_of_transactional_id("id")
SHOP = scope_of_namespace("shop")
EXCHANGE = exchange_key("shop", "events")
_OF_ONE_NAMESPACE = (Space.EXCHANGES, Space.BINDINGS, Space.QUEUES, Space.DELIVERY_LIMITS)


def offset(group: str, value: bytes | None = b"7", topic: TopicId = TOPIC.id) -> Put:
    return Put(Space.OFFSETS, topic + bytes(4) + group.encode(), value)


def marker(
    partition: PartitionId = PARTITION,
    scope: Scope | None = None,
    *,
    commit: bool = True,
    has_referral: bool = False,
) -> Append:
    batch = memoryview(build_marker(7, 0, commit=commit, timestamp=5))
    return Append(
        partition, batch, parse_header(batch), required=False, scope=scope, has_referral=has_referral
    )


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([], set()),
        ([append(PARTITION, b"1"), numbered(PARTITION, 0)], set()),
        ([offset("orders")], {ORDERS}),
        ([offset("orders", None), append(PARTITION, b"1")], {ORDERS}),
        ([Put(Space.GROUPS, b"mails", b""), offset("orders")], {MAILS, ORDERS}),
        ([Put(Space.STREAMS_GROUPS, b"mails", b"")], {MAILS}),
        ([Put(Space.SHARE_GROUPS, TOPIC.id + b"mails", b"")], {MAILS}),
        ([Put(Space.SHARE_PROGRESS, bytes(40), b"")], set()),
        ([Put(Space.GROUP_CONFIGS, b"mails", b"")], {COORDINATOR}),
        ([Put(Space.USERS, b"ada", b"")], {COORDINATOR}),
        ([Put(Space.QUEUE_PROGRESS, bytes(40), b""), offset("orders")], {ORDERS}),
        ([Put(Space.EXCHANGES, EXCHANGE, b"")], {SHOP}),
        ([Put(Space.BINDINGS, EXCHANGE, b""), Put(Space.QUEUES, EXCHANGE, None)], {SHOP}),
        ([Put(space, bytes(40), b"") for space in (Space.SCHEDULE, Space.DUE, Space.SOURCES)], set()),
        ([Trim(PARTITION, 1)], set()),
        ([Trim(PARTITION, 1, SHOP)], {SHOP}),
        ([Trim(PARTITION, 1, HOUSEKEEPING[3])], {HOUSEKEEPING[3]}),
        ([Refer(OTHER, [Run(PARTITION, 0, 1, 1)])], set()),
        ([numbered(PARTITION, 0, transactional=True), offset("orders")], {COORDINATOR, ORDERS}),
        ([admitted_batch(PARTITION, 0)], set()),
        # The end of a transaction
        ([marker(), offset("orders"), offset("mails")], {COORDINATOR}),
        ([marker(scope=JOB), offset("orders"), offset("mails")], {JOB}),
        ([offset("orders"), Put(Space.TRANSACTIONS, b"id", b"")], {JOB}),
        ([Put(Space.TRANSACTION_OFFSETS, b"\0\2id", None), offset("orders")], {JOB}),
        ([Put(Space.TRANSACTIONS, b"id", b""), Put(Space.ADMISSIONS, bytes(28), b"")], {JOB}),
        ([Put(Space.TRANSACTIONS, b"id", b""), Put(Space.REFERRALS, bytes(36), b"")], {JOB}),
        ([Put(Space.REFERRALS, bytes(36), None)], set()),
        ([marker(), Put(Space.GROUPS, b"mails", b"")], {COORDINATOR, MAILS}),
    ],
)
def test_scopes_of_a_commit(operations: Sequence[Operation], expected: set[Scope]) -> None:
    assert scopes_of(operations) == expected


@given(st.text())
def test_all_state_of_a_group_is_in_its_scope(group: str) -> None:
    name = group.encode()
    puts = [
        offset(group),
        Put(Space.GROUPS, name, b""),
        Put(Space.STREAMS_GROUPS, name, b""),
        Put(Space.SHARE_GROUPS, TOPIC.id + name, b""),
    ]
    assert scopes_of(puts) == {scope_of_group(group)}


@given(st.text(), st.text())
def test_definitions_of_a_namespace_are_in_its_scope(namespace: str, name: str) -> None:
    key = exchange_key(namespace, name)
    puts = [Put(space, key, b"") for space in _OF_ONE_NAMESPACE]
    assert scopes_of(puts) == {scope_of_namespace(namespace)}


@given(st.text(), st.integers(min_value=0))
def test_all_state_of_a_job_is_in_its_scope(name: str, number: int) -> None:
    id = f"{name}/{number}"
    key = id.encode()
    puts = [
        Put(Space.TRANSACTIONS, key, b""),
        Put(Space.TRANSACTION_OFFSETS, len(key).to_bytes(2, "big") + key + bytes(30), b""),
        Put(Space.FENCES, name.encode(), b""),
    ]
    assert scopes_of(puts) == {scope_of_job(name)} == {scope_of_transactional_id(id)}


async def test_the_holder_of_a_transactional_id_ends_its_transactions(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    partition = topic.partition(0)
    lease = await take_lease(database, scopes=[JOB])
    member = await make_member(database, objects, clock, lease=lease, tail_bytes=1000)
    await member.open()
    begun = numbered(partition, 0, transactional=True)
    with pytest.raises(ScopeNeeded):
        await member.commit([begun])
    begun.scope = JOB
    [written] = await member.commit([begun])
    ended: list[Operation] = [marker(partition, JOB), Put(Space.TRANSACTIONS, b"id", b"1"), offset("orders")]
    [end, *_] = await member.commit(ended)
    assert (written.base_offset, end.base_offset) == (0, 1)
    assert member.bounds(partition).stable == 2
    found = await shared.shared_state.of_owners(Space.OFFSETS, [b"orders"])
    assert list(found.values()) == [b"7"]
    await member.close()


async def test_a_commit_to_a_log_of_a_namespace_needs_a_referral(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Else queues would never get the records. Whatever comes with the marker is void, too."""
    topic = replace(make_topic(), scope=NAMESPACES[3])
    await shared.create_topics([topic])
    partition = topic.partition(0)
    lease = await take_lease(database, scopes=[JOB, SHOP, NAMESPACES[4]])
    member = await make_member(database, objects, clock, lease=lease, tail_bytes=1000)
    await member.open()
    await serve(member, NAMESPACES[4])
    begun = numbered(partition, 0, transactional=True)
    begun.scope = JOB
    state = Put(Space.TRANSACTIONS, b"id", b"1")
    await member.commit([begun])
    with pytest.raises(OperationRefused) as refused:
        await member.commit([marker(partition, JOB), state])
    assert isinstance(refused.value.reason, NotLeader)
    assert not await shared.shared_state.of_space(Space.TRANSACTIONS)
    [plain] = await member.commit([replace(append(partition, b"outside"), required=False)])
    assert isinstance(plain.refusal, NotLeader)
    referral = Put(Space.REFERRALS, bytes(36), b"")
    [end, *_] = await member.commit([marker(partition, JOB, has_referral=True), state, referral])
    assert end.base_offset == 1 and end.refusal is None
    assert list(await shared.shared_state.of_space(Space.REFERRALS)) == [bytes(36)]
    another = numbered(partition, 1, transactional=True)
    another.scope = JOB
    await member.commit([another])
    [aborted, *_] = await member.commit([marker(partition, JOB, commit=False), state])
    assert aborted.base_offset == 3 and aborted.refusal is None
    await member.close()


async def test_the_holder_of_the_namespace_commits_without_a_referral(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """It writes the references itself. What it has only taken and does not serve, it may not."""
    topic = replace(make_topic(), scope=NAMESPACES[3])
    await shared.create_topics([topic])
    partition = topic.partition(0)
    lease = await take_lease(database, scopes=[JOB, NAMESPACES[3]])
    member = await make_member(database, objects, clock, lease=lease, tail_bytes=1000)
    await member.open()
    begun = numbered(partition, 0, transactional=True)
    begun.scope = JOB
    await member.commit([begun])
    await member.take_namespaces(NAMESPACES[3])
    with pytest.raises(OperationRefused) as refused:
        await member.commit([marker(partition, JOB)])
    assert isinstance(refused.value.reason, NotLeader)
    member.serve_namespaces(NAMESPACES[3])
    [end] = await member.commit([marker(partition, JOB)])
    assert (end.base_offset, end.refusal) == (1, None)
    await member.close()


async def test_the_database_refuses_state_and_transactions_without_their_scope(
    shared: SharedStorage,
    database: Database,
    objects: FaultyObjectStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    partition = topic.partition(0)
    monkeypatch.setattr(committer, "check_scopes", lambda lease, scopes: None)
    monkeypatch.setattr(committer, "scopes_of", lambda operations: set())
    for operations in (
        [marker(partition, JOB)],
        [numbered(partition, 0, transactional=True)],
        [Put(Space.TRANSACTIONS, b"id", b"1")],
        [Put(Space.ADMISSIONS, bytes(28), b"")],
        [Put(Space.EXCHANGES, EXCHANGE, b"")],
        [Put(Space.GROUP_CONFIGS, b"orders", b"")],
    ):
        member = Member(database, objects, clock, await take_lease(database, scopes=[ORDERS]))
        await member.open()
        with pytest.raises(ScopeNeeded):
            await member.commit(operations)
        await member.close()
    await shared.refresh([partition])
    assert shared.bounds(partition).end == 0


async def test_a_member_commits_the_offsets_of_its_groups(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    member = await make_member(
        database, objects, clock, lease=await take_lease(database, scopes=[ORDERS]), tail_bytes=1000
    )
    await member.open()
    # One that it does not hold is refused before the database is asked, and the storage goes on.
    with pytest.raises(ScopeNeeded, match=f"does not hold the scope {MAILS}"):
        await member.commit([offset("mails")])
    [record, _] = await member.commit([append(topic.partition(0), b"1"), offset("orders")])
    assert record.base_offset == 0
    await member.commit([Put(Space.GROUPS, b"orders", b"members"), Put(Space.SHARE_PROGRESS, bytes(40), b"")])
    await member.commit([offset("orders", b"8")])
    found = await shared.shared_state.of_owners(Space.OFFSETS, [b"orders"])
    assert list(found.values()) == [b"8"]
    await member.close()


async def test_the_database_refuses_a_scope_that_another_holds(
    shared: SharedStorage,
    database: Database,
    objects: FaultyObjectStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker is wrong about what it holds, so that it must not go on."""
    topic = make_topic()
    await shared.create_topics([topic])
    holder = Member(database, objects, clock, await take_lease(database, scopes=[ORDERS]))
    other = Member(database, objects, clock, await take_lease(database, scopes=[MAILS]))
    for each in (holder, other):
        await each.open()
    monkeypatch.setattr(committer, "check_scopes", lambda lease, scopes: None)
    with pytest.raises(LeaseLost, match=f"does not hold the scope {ORDERS}"):
        await other.commit([append(topic.partition(0), b"void"), offset("orders", b"9")])
    assert other.fenced is not None
    await holder.commit([offset("orders", b"8")])
    found = await shared.shared_state.of_owners(Space.OFFSETS, [b"orders"])
    assert list(found.values()) == [b"8"]
    await shared.refresh([topic.partition(0)])
    assert shared.bounds(topic.partition(0)).end == 0
    await holder.close()
    await other.close()


async def test_commits_of_a_broker_that_was_fenced(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Also plain appends of a member: it must find out that its groups are another's."""
    topic = make_topic()
    await shared.create_topics([topic])
    member = Member(database, objects, clock, await take_lease(database, scopes=[ORDERS]))
    await member.open()
    await member.commit([append(topic.partition(0), b"1")])
    successor = Member(database, objects, clock, await take_lease(database, scopes=[ORDERS]))
    await successor.open()
    with pytest.raises(LeaseLost):
        await member.commit([append(topic.partition(0), b"2")])
    await successor.commit([offset("orders"), append(topic.partition(0), b"3")])
    late = Member(database, objects, clock, member.lease)
    with pytest.raises(LeaseLost):
        await late.open()
    for each in (member, successor):
        await each.close()
    storage = await make_shared(database, objects, clock)
    await storage.open()
    assert storage.bounds(topic.partition(0)).end == 2
    await storage.close()


async def test_the_end_of_a_transaction_writes_offsets_of_groups_elsewhere(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Beside their holder, who commits offsets of the same groups: none waits for another in a circle."""
    lease = await take_lease(database, scopes=[COORDINATOR, *TRANSACTIONS])
    coordinator = Member(database, objects, clock, lease)
    holder = Member(database, objects, clock, await take_lease(database, scopes=GROUPS))
    for each in (coordinator, holder):
        await each.open()
    with pytest.raises(ScopeNeeded):
        await coordinator.commit([offset("orders")])
    groups = [f"group-{number}" for number in range(20)]

    async def commit(broker: Member, seed: int, *more: Operation) -> None:
        random = Random(seed)
        for _ in range(300):
            chosen = random.sample(groups, 8)
            puts = [offset(group, random.choice([b"1", b"2"])) for group in chosen]
            await broker.commit([*puts, *more])

    await asyncio.gather(commit(coordinator, 1, Put(Space.TRANSACTIONS, b"id", b"1")), commit(holder, 2))
    assert [each.inline._metrics.failures for each in (coordinator, holder)] == [0, 0]
    for each in (coordinator, holder):
        await each.close()


async def test_no_broker_commits_during_an_import(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """The import fences those that have not noticed."""
    topic = make_topic()
    await shared.create_topics([topic])
    member = Member(database, objects, clock, await take_lease(database, scopes=()))
    await member.open()
    await member.commit([append(topic.partition(0), b"1")])
    async with await database.connect("tests") as connection:
        await connection.execute("SELECT take_everything(%s, 60)", [TOPIC.id.hex()])
    with pytest.raises(LeaseLost):
        await member.commit([append(topic.partition(0), b"2")])
    with pytest.raises(LeaseLost):
        await shared.commit([append(topic.partition(0), b"2")])
    await member.close()


async def test_a_commit_names_scopes_of_all_its_group(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Commits of one call share its check."""
    member = Member(database, objects, clock, await take_lease(database, scopes=[ORDERS, MAILS]))
    await member.open()
    await asyncio.gather(member.commit([offset("orders")]), member.commit([offset("mails")]))
    async with await database.connect("tests") as connection:
        await connection.execute("UPDATE scope SET holder = NULL WHERE name = %s", [MAILS.name])
    refused = await asyncio.gather(
        member.commit([offset("orders", b"8")]),
        member.commit([offset("mails", b"8")]),
        return_exceptions=True,
    )
    assert [type(each) for each in refused] == [LeaseLost, LeaseLost]
    await member.close()


async def test_the_scope_of_a_shard_is_the_same_in_the_database(database: Database) -> None:
    async with await database.connect("tests") as connection:
        for group in ("orders", "mails", "", "g" * 300):
            found = await connection.execute("SELECT shard_of(%s)", [group.encode()])
            assert [GROUPS[shard] for [shard] in await found.fetchall()] == [scope_of_group(group)]


async def test_the_database_lets_holders_of_one_kind_not_write_the_state_of_another(
    shared: SharedStorage,
    database: Database,
    objects: FaultyObjectStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the broker believes. With both kinds of scopes it may write both."""
    of_queues = [Put(space, EXCHANGE, b"") for space in _OF_ONE_NAMESPACE]
    of_jobs = [Put(space, b"id", b"") for space in (Space.TRANSACTIONS, Space.FENCES)]
    monkeypatch.setattr(committer, "scopes_of", lambda operations: set())
    serving = Member(database, objects, clock, await take_lease(database, scopes=[SHOP, JOB]))
    await serving.open()
    await serving.commit(of_queues)
    for each in of_jobs:
        with pytest.raises(ScopeNeeded, match="another scope"):
            await serving.commit([each])
    monkeypatch.setattr(committer, "scopes_of", lambda operations: {JOB})
    await serving.commit([*of_jobs, *of_queues])
    serving.committer.leave_namespaces(SHOP)
    await serving.commit(of_jobs)
    for each in of_queues:
        with pytest.raises(ScopeNeeded, match="another scope"):
            await serving.commit([each])
    await serving.close()


async def test_what_is_stored_while_a_namespace_is_loaded_opens_its_logs_to_no_other_commit(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """A definition names the scope before it is served. A record beside it knows nothing of queues."""
    topic = replace(make_topic(), scope=SHOP)
    await shared.create_topics([topic])
    partition = topic.partition(0)
    lease = await take_lease(database, scopes=[SHOP])
    member = await make_member(database, objects, clock, lease=lease)
    await member.open()
    with pytest.raises(ScopeNeeded, match="does not serve"):
        await member.commit([Put(Space.EXCHANGES, EXCHANGE, b"")])
    await member.take_namespaces(SHOP)
    plain = replace(append(partition, b"x"), required=False)
    [_], [refused], [_] = await asyncio.gather(
        member.commit([Put(Space.EXCHANGES, EXCHANGE, b"1")]),
        member.commit([plain]),
        member.commit([Put(Space.EXCHANGES, EXCHANGE, b"2")]),
    )
    assert isinstance(refused.refusal, NotLeader)
    # What waits from before it is served stays refused as well.
    early = member.commit([replace(append(partition, b"early"), required=False)])
    member.serve_namespaces(SHOP)
    late = member.commit([append(partition, b"late")])
    [[refused], [done]] = await asyncio.gather(early, late)
    assert isinstance(refused.refusal, NotLeader)
    assert (done.base_offset, done.refusal) == (0, None)
    await member.close()


async def test_every_commit_of_a_broker_that_serves_a_namespace_is_checked_for_its_scope(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Also one that does not touch it: the broker would go on to believe that it serves the queues."""
    topic = make_topic()
    await shared.create_topics([topic])
    member = Member(database, objects, clock, await take_lease(database, scopes=[SHOP]))
    await member.open()
    await member.commit([append(topic.partition(0), b"1")])
    async with await database.connect("tests") as connection:
        await connection.execute("UPDATE scope SET holder = NULL WHERE name = %s", [SHOP.name])
    with pytest.raises(LeaseLost, match=f"does not hold the scope {SHOP}"):
        await member.commit([append(topic.partition(0), b"2")])
    assert member.fenced is not None
    await member.close()


async def test_the_scope_of_a_namespace_is_the_same_in_the_database(database: Database) -> None:
    async with await database.connect("tests") as connection:
        for number, scope in enumerate(NAMESPACES):
            found = await connection.execute(
                "SELECT scope_of_namespaces(%s), holder IS NULL FROM scope WHERE name = %s",
                [number, scope.name],
            )
            assert await found.fetchall() == [(scope.name, True)]
        for name in ("/", "shop", "", "n" * 300):
            found = await connection.execute("SELECT shard_of(%s) %% 16", [name.encode()])
            assert [NAMESPACES[shard] for [shard] in await found.fetchall()] == [scope_of_namespace(name)]
