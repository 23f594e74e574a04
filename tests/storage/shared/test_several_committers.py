"""Several brokers that commit in turn, one of them the coordinator: they are told what one storage tells.

The memory engine is that one storage. It knows neither scopes of namespaces nor late appends to deleted
topics: the test decides those itself.
"""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader, PosthouseError, UnknownPartition
from posthouse.model.scopes import NAMESPACES, SCOPES
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.definition_changes import DefinitionChange
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.outcomes import OperationRefused, Outcome
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs.definitions import Definitions
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from tests.storage.batches import make_topic, read_all
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.members import Member, members
from tests.storage.shared.opened import TestLease, make_shared, take_lease
from tests.storage.shared.test_against_memory import (
    BATCHES,
    LOGS,
    STEPS,
    Batch,
    Pair,
    Step,
    _content,
    _plain,
    pair,
)
from tests.storage.shared.test_commits_of_members import numbered

__all__ = ["pair"]

MEMBERS = 2
TOPICS = 3
_names = itertools.count()


@dataclass(frozen=True)
class Turn:
    """Commits of one broker at the same time; 0 is the coordinator, and number n holds `NAMESPACES[n]`."""

    broker: int
    topic: int
    steps: Sequence[Step]


@dataclass(frozen=True)
class Give:
    """By the holder of the scope. The first one counts."""

    topic: int
    scope: int


@dataclass(frozen=True)
class Delete:
    topic: int


def _plain_step(batches: Sequence[Batch], trims: Sequence[tuple[int, int]]) -> Step:
    return Step([replace(each, transactional=False) for each in batches], (), trims, ())


def _of_any_broker(step: Step) -> Step:
    """What a broker that does not hold the scope is refused as a whole, and may be: transactions are not."""
    return _plain_step([each for each in step.batches if isinstance(each, Batch)], step.trims)


APPENDS = st.builds(
    _plain_step,
    st.lists(
        BATCHES,
        min_size=1,
        max_size=4,
        unique_by=lambda each: (each.log, each.producer[0]) if each.producer else object(),
    ),
    st.lists(st.tuples(st.integers(0, LOGS - 1), st.integers(0, 12)), max_size=1),
)
NUMBERS = st.integers(0, TOPICS - 1)
TURNS = st.one_of(
    st.builds(Turn, broker=st.just(0), topic=NUMBERS, steps=st.lists(STEPS, min_size=1, max_size=3)),
    st.builds(
        Turn, broker=st.integers(1, MEMBERS), topic=NUMBERS, steps=st.lists(APPENDS, min_size=1, max_size=3)
    ),
    st.builds(
        Turn,
        broker=st.integers(1, MEMBERS),
        topic=st.just(0),
        steps=st.lists(APPENDS, min_size=1, max_size=3),
    ),
)
CHANGES = st.one_of(
    st.builds(Give, topic=st.integers(1, 2), scope=st.integers(0, MEMBERS)),
    st.builds(Delete, topic=st.just(2)),
)


@settings(max_examples=20)
@given(turns=st.lists(st.one_of(TURNS, TURNS, TURNS, CHANGES), min_size=1, max_size=12))
def test_any_turns_give_what_one_storage_gives(pair: Pair, turns: list[Turn | Give | Delete]) -> None:
    pair.runner.run(_same(pair, turns))


def _definitions(database: Database, lease: TestLease) -> Definitions:
    changes: list[DefinitionChange] = []
    numbers: list[int] = []
    return Definitions(
        database,
        lease.incarnation,
        lease.epoch,
        {},
        SharedLogs(),
        TopicConfig(),
        changes.append,
        numbers.append,
    )


async def _same(pair: Pair, turns: list[Turn | Give | Delete]) -> None:
    of_members = NAMESPACES[1 : MEMBERS + 1]
    leases = [await take_lease(pair.database, scopes=set(SCOPES) - set(of_members))]
    leases += [await take_lease(pair.database, scopes=[each]) for each in of_members]
    definitions = [_definitions(pair.database, lease) for lease in leases]
    topics = [make_topic(f"turns-{next(_names)}", partitions=LOGS) for _ in range(TOPICS)]
    queues = replace(make_topic(f"turns-{next(_names)}", partitions=2), scope=NAMESPACES[0])
    await definitions[0].create([*topics, queues])
    memory = MemoryStorage(pair.clock)
    await memory.open()
    await memory.create_topics([*topics, queues])
    brokers = [Member(pair.database, pair.objects, pair.clock, lease) for lease in leases]
    for each in brokers:
        await each.open()
    holders: dict[int, int] = {}
    deleted: set[int] = set()
    try:
        for turn in turns:
            if isinstance(turn, Give):
                await definitions[turn.scope].give([topics[turn.topic]], NAMESPACES[turn.scope])
                holders.setdefault(turn.topic, turn.scope)
            elif isinstance(turn, Delete):
                await definitions[0].delete([topics[turn.topic].id])
                deleted.add(turn.topic)
            else:
                refusal: type[PosthouseError] | None = None
                if turn.topic in deleted:
                    refusal = UnknownPartition
                elif holders.get(turn.topic, turn.broker) != turn.broker:
                    refusal = NotLeader
                await _take(turn, brokers, memory, topics[turn.topic], queues, refusal)
            pair.clock.advance(1)
        kept = [topic for number, topic in enumerate(topics) if number not in deleted]
        await _check(pair, memory, [*kept, queues])
        assert [each.fenced for each in brokers] == [None] * len(brokers)
    finally:
        for each in brokers:
            await each.close()
        last = _definitions(pair.database, await take_lease(pair.database))
        await last.delete([topic.id for topic in [*topics, queues]])
        connection = await pair.database.connect("tests")
        await connection.execute("DELETE FROM state")
        await connection.close()


async def _take(
    turn: Turn,
    brokers: Sequence[Member],
    memory: MemoryStorage,
    topic: Topic,
    queues: Topic,
    refusal: type[PosthouseError] | None,
) -> None:
    if turn.broker == 0 and refusal is UnknownPartition:
        return  # it has deleted the topic itself
    broker = brokers[turn.broker]
    steps = turn.steps if refusal is None else [_of_any_broker(step) for step in turn.steps]
    found = await asyncio.gather(
        *(broker.commit(step.operations(topic, queues)) for step in steps), return_exceptions=True
    )
    if refusal is not None:
        for step, result in zip(steps, found, strict=True):
            _check_refused(step, result, refusal)
        return
    expected = await asyncio.gather(
        *(memory.commit(step.operations(topic, queues)) for step in turn.steps), return_exceptions=True
    )
    assert [_plain(each) for each in found] == [_plain(each) for each in expected]


def _check_refused(step: Step, result: Any, refusal: type[PosthouseError]) -> None:
    if any(isinstance(each, Batch) and each.required for each in step.batches):
        assert isinstance(result, OperationRefused)
        assert type(result.reason) is refusal
        return
    assert isinstance(result, list)
    for outcome in result:
        assert isinstance(outcome, Outcome)
        assert (outcome.base_offset, type(outcome.refusal)) == (-1, refusal)


async def _check(pair: Pair, memory: MemoryStorage, topics: Sequence[Topic]) -> None:
    storage = await pair.opened(10**6)
    try:
        assert await _content(storage, topics) == await _content(memory, topics)
    finally:
        await storage.close()


async def test_batches_that_are_sent_to_two_brokers_at_once(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """As by a client that repeats them elsewhere while the first call is under way: each is there once."""
    topic = make_topic(partitions=2)
    await shared.create_topics([topic])
    random = Random(4711)

    async def produce(made: Sequence[Member], producer_id: int) -> None:
        for sequence in range(40):
            partition = topic.partition(producer_id % 2)
            outcomes = await asyncio.gather(
                *(
                    member.commit([numbered(partition, sequence, producer_id=producer_id)])
                    for member in random.sample(made, 2)
                )
            )
            [first, second] = [outcome for [outcome] in outcomes]
            assert first.refusal is None and second.refusal is None
            assert first.base_offset == second.base_offset >= 0

    async with members(3, database, objects, clock) as made:
        await asyncio.gather(*(produce(made, id) for id in range(6)))
    reader = await make_shared(database, objects, clock)
    await reader.open()
    for partition in topic.partition_ids():
        found = await read_all(reader, partition)
        assert list(found) == list(range(3 * 40))
        by_producer: dict[bytes, list[int]] = {}
        for value in found.values():
            assert value is not None
            producer, _, sequence = value.partition(b":")
            by_producer.setdefault(producer, []).append(int(sequence))
        assert list(by_producer.values()) == [list(range(40))] * 3
    await reader.close()
