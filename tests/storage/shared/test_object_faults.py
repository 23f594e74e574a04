"""An object store that fails, stores and answers with an error, or is slow: only object topics notice."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from tests.checker.history import Outcome, Send
from tests.postgres import PostgresServer
from tests.storage.batches import append
from tests.storage.shared.commit_clients import PATHS, GroupClient, IdempotentClient, PlainClient
from tests.storage.shared.fault_arena import FaultArena, fault_arena
from tests.storage.shared.faulty_objects import Fault
from tests.storage.shared.opened import make_shared


@pytest.fixture
async def arena(postgres: PostgresServer, clock: ManualClock) -> AsyncIterator[FaultArena]:
    async with fault_arena(postgres, clock) as made:
        yield made


def outcomes_of(arena: FaultArena, topic: str) -> set[Outcome]:
    history = arena.scene.recorder.history
    return {each.outcome for each in history if isinstance(each, Send) and each.partition[0] == topic}


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER], ids=lambda fault: fault.name.lower())
async def test_puts_that_fail_now_and_then(arena: FaultArena, fault: Fault) -> None:
    for after in range(8):
        arena.objects.fail(fault, "put", after=after % 3)
        await arena.round()
    assert arena.objects.faults[fault] == 8
    assert outcomes_of(arena, "object") == {Outcome.OK, Outcome.FAILED}
    assert arena.fenced == 0
    assert await arena.anomalies() == []


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER], ids=lambda fault: fault.name.lower())
async def test_inline_topics_go_on_while_the_store_is_away(arena: FaultArena, fault: Fault) -> None:
    scene = arena.scene
    clients = [
        *(PlainClient(scene, (path, 1)).step for path in PATHS),
        *(GroupClient(scene, (path, 1)).step for path in PATHS),
    ]
    idempotent = IdempotentClient(scene, ("object", 1), 777)
    arena.objects.fail(fault, "put", for_ever=True)
    waiting = asyncio.create_task(idempotent.step())
    for _ in range(5):
        await asyncio.gather(*(step() for step in clients))
    assert outcomes_of(arena, "object") == {Outcome.FAILED}
    assert outcomes_of(arena, "inline") == {Outcome.OK}
    assert not waiting.done()
    arena.objects.heal()
    await asyncio.wait_for(waiting, 10)
    for _ in range(2):
        await arena.round()
    assert outcomes_of(arena, "object") == {Outcome.FAILED, Outcome.OK}
    assert await arena.anomalies() == []


async def test_inline_topics_go_on_while_the_store_is_slow(arena: FaultArena) -> None:
    scene = arena.scene
    arena.objects.gate.clear()
    waiting = asyncio.create_task(PlainClient(scene, ("object", 1)).step())
    await asyncio.sleep(0.1)
    for _ in range(5):
        await asyncio.wait_for(PlainClient(scene, ("inline", 1)).step(), 5)
    assert outcomes_of(arena, "inline") == {Outcome.OK}
    assert not waiting.done()
    arena.objects.gate.set()
    await waiting
    await arena.round()
    assert outcomes_of(arena, "object") == {Outcome.OK}
    assert await arena.anomalies() == []


async def test_a_large_inline_group_goes_into_the_database_instead(arena: FaultArena) -> None:
    scene = arena.scene
    storage = await make_shared(arena.database, arena.objects, arena.clock, inline_bytes=100)
    await storage.open()
    scene.storage = storage
    arena.objects.fail(Fault.FAIL_AFTER, "put", for_ever=True)
    client = IdempotentClient(scene, ("inline", 0), 777)
    for _ in range(3):
        await client.step()
    assert arena.objects.faults[Fault.FAIL_AFTER] == 1  # the store gets a rest
    await storage.close()
    assert await arena.anomalies() == []


async def test_reads_fail_while_the_store_is_away_and_go_on(arena: FaultArena) -> None:
    await arena.round()
    cold = await arena.take_over(arena.database)
    partition = arena.scene.partition(("object", 1))
    arena.objects.fail(Fault.FAIL, "read")
    with pytest.raises(Unavailable):
        await cold.read(partition, 0, 2**16)
    assert len((await cold.read(partition, 0, 2**16)).data) > 0
    await cold.commit([append(partition, b"-1:")])
