"""Negative controls: a storage without one of its safeguards, whose broken promises the checker must find."""

from collections.abc import AsyncIterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared import engine
from tests.postgres import PostgresServer
from tests.storage.shared.broken_calls import WITHOUT_CHECK_OF_THE_LEASE, ForgetfulCall, HastyCall
from tests.storage.shared.commit_clients import PlainClient
from tests.storage.shared.fault_arena import FaultArena, fault_arena
from tests.storage.shared.postgres_proxy import AFTER_COMMIT, Damage, Direction, ProxyFault

MESSAGES = 8


@pytest.fixture
async def arena(postgres: PostgresServer, clock: ManualClock) -> AsyncIterator[FaultArena]:
    async with fault_arena(postgres, clock) as made:
        yield made


async def test_a_call_that_is_repeated_without_asking_counts_twice(
    postgres: PostgresServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CommitCall", ForgetfulCall)
    async with fault_arena(postgres, clock) as arena:
        client = PlainClient(arena.scene, ("inline", 0))
        arena.proxy.arm(AFTER_COMMIT)
        await client.step()
        assert arena.proxy.fired == 1
        assert any(text.startswith("duplicate:") for text in await arena.anomalies())


async def forget_loss(arena: FaultArena) -> None:
    async with await arena.direct.connect("tests") as connection:
        await connection.execute("UPDATE cluster SET loss = NULL")


async def test_an_answer_before_the_transaction_has_ended_may_be_lost(
    postgres: PostgresServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CommitCall", HastyCall)
    async with fault_arena(postgres, clock) as arena:
        client = PlainClient(arena.scene, ("inline", 0))
        for message in range(MESSAGES):
            # A storage notices what it lost when it asks, and stops: so there is a new one each time.
            await forget_loss(arena)
            arena.scene.storage = await arena.take_over(arena.database)
            await client.step()
            arena.proxy.arm(ProxyFault(direction=Direction.TO_SERVER, message=message, damage=Damage.CUT))
            await client.step()
        await forget_loss(arena)
        assert any(text.startswith("lost write:") for text in await arena.anomalies())


async def two_holders(arena: FaultArena) -> None:
    """The first goes on after the second has taken over, as it would after a long pause."""
    scene = arena.scene
    client = PlainClient(scene, ("inline", 0))
    first = scene.storage
    await arena.round()
    second = await arena.take_over(arena.direct)
    for storage in (second, first, second):
        scene.storage = storage
        await client.step()
    await arena.clients.read()


async def test_two_storages_that_both_believe_they_hold_the_lease(arena: FaultArena) -> None:
    await two_holders(arena)
    assert arena.fenced == 1
    await arena.clients.round()
    assert await arena.anomalies() == []


async def test_without_the_check_of_the_lease_both_write(arena: FaultArena) -> None:
    """Batches of another broker in its logs tell a holder nothing: only the database can stop it."""
    connection = await arena.direct.connect("tests")
    await connection.execute(WITHOUT_CHECK_OF_THE_LEASE)
    await connection.close()
    await two_holders(arena)
    assert arena.fenced == 0
