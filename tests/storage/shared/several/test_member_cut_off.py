"""A member whose database is away: it reads what it knows, refuses the rest, and goes on afterwards."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.model.ids import PartitionId
from posthouse.storage.definition_changes import DefinitionChange
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.shared.opened import make_member, make_shared
from tests.storage.shared.postgres_proxy import Damage, Direction, PostgresProxy, ProxyFault, proxied
from tests.storage.shared.several.brokers import until


class Pair(NamedTuple):
    coordinator: SharedStorage
    member: SharedStorage
    proxy: PostgresProxy
    """Before the member's database; it counts the messages of its followers."""
    partition: PartitionId


@pytest.fixture
async def pair(postgres: PostgresServer, clock: ManualClock) -> AsyncIterator[Pair]:
    objects = MemoryObjectStore(clock)
    with new_database(postgres, MIGRATED) as url:
        async with proxied(url, "posthouse following") as (proxy, through_proxy):
            coordinator = await make_shared(Database(url), objects, clock)
            await coordinator.open()
            topic = make_topic()
            await coordinator.create_topics([topic])
            member = await make_member(Database(through_proxy), objects, clock)
            await member.open()
            yield Pair(coordinator, member, proxy, topic.partition(0))
            proxy.accept()
            await member.close()
            await coordinator.close()


async def test_known_records_are_read_and_nothing_else_is_promised(pair: Pair) -> None:
    coordinator, member, proxy, partition = pair
    await member.commit([append(partition, b"0")])
    proxy.refuse()
    await coordinator.commit([append(partition, b"1")])
    assert values_in((await member.read(partition, 0, 100)).data) == {0: b"0"}
    for refused in (
        member.read(partition, 2, 100),
        member.refresh([partition]),
        member.refresh([partition], with_producers=True),
        member.refresh_definitions(),
    ):
        with pytest.raises(Unavailable):
            await refused
    assert member.bounds(partition).end == 1
    proxy.accept()
    await member.read(partition, 1, 100)  # at the end that it knows: it is followed again
    await until(lambda: member.bounds(partition).end == 2)
    assert list(await read_all(member, partition)) == [0, 1]


@pytest.mark.parametrize("direction", list(Direction), ids=lambda value: value.name.lower())
@pytest.mark.parametrize("message", range(6))
async def test_followers_survive_cuts_at_every_message(
    pair: Pair, direction: Direction, message: int
) -> None:
    coordinator, member, proxy, partition = pair
    changes: list[DefinitionChange] = []
    arrived: list[int] = []
    member.subscribe(lambda _, size: arrived.append(size), lambda: [partition])
    member.subscribe_definitions(changes.append)
    proxy.arm(ProxyFault(direction=direction, message=message, damage=Damage.CUT))
    await until(lambda: proxy.fired > 0)
    batch, later = append(partition, b"0"), make_topic("later")
    await coordinator.commit([batch])
    await coordinator.create_topics([later])
    await until(lambda: member.bounds(partition).end == 1 and later.id in member.topics)
    assert sum(arrived) == batch.header.length
    assert [topic for change in changes for topic in change.topics] == [later], "each change is told once"


async def test_a_member_closes_while_its_database_does_not_answer(pair: Pair) -> None:
    _, member, proxy, partition = pair
    member.subscribe(lambda *_: None, lambda: [partition])
    delay = ProxyFault(direction=Direction.TO_SERVER, message=0, damage=Damage.DELAY, seconds=60)
    proxy.arm(delay, delay)
    waiting = [asyncio.create_task(member.refresh([partition])) for _ in range(3)]
    await until(lambda: proxy.fired > 0)
    async with asyncio.timeout(5):
        await member.close()
    for each in waiting:
        with pytest.raises(Unavailable):
            await each
