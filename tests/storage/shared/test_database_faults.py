"""PostgreSQL that is killed, paused, replaced by an older copy, or served by another broker."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFenced, Unavailable
from posthouse.storage.shared import engine
from tests.checker.history import Outcome, Send
from tests.postgres import PostgresServer, migrated_server
from tests.storage.batches import append
from tests.storage.shared.commit_clients import PlainClient
from tests.storage.shared.fault_arena import FaultArena, fault_arena
from tests.storage.shared.postgres_proxy import Damage, Direction, ProxyFault

ANSWER_SECONDS = 1.0


@pytest.fixture
async def arena(
    request: pytest.FixtureRequest,
    postgres: PostgresServer,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[FaultArena]:
    """With as many members as a test asks for."""
    monkeypatch.setattr(engine, "_ANSWER_SECONDS", ANSWER_SECONDS)
    async with fault_arena(postgres, clock, members=getattr(request, "param", 0)) as made:
        yield made


@contextlib.asynccontextmanager
async def at_work(arena: FaultArena) -> AsyncIterator[None]:
    """Clients work during the block, and finish the round that is under way at its end."""
    is_over = asyncio.Event()

    async def work() -> None:
        while not is_over.is_set():
            await arena.round()

    working = asyncio.create_task(work())
    await asyncio.sleep(0.3)
    try:
        yield
    finally:
        is_over.set()
        await working


def outcomes(arena: FaultArena) -> list[Outcome]:
    return [each.outcome for each in arena.scene.recorder.history if isinstance(each, Send)]


@pytest.mark.parametrize("arena", [0, 2], ids=["alone", "members"], indirect=True)
async def test_a_server_that_is_killed_and_comes_back(arena: FaultArena, postgres: PostgresServer) -> None:
    async with at_work(arena):
        for _ in range(3):
            postgres.kill()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(postgres.start)
            await asyncio.sleep(0.3)
    await arena.round()
    assert outcomes(arena)[-1] is Outcome.OK
    assert arena.fenced == 0
    assert await arena.anomalies() == []


async def test_a_server_that_pauses_for_long(arena: FaultArena, postgres: PostgresServer) -> None:
    await arena.round()
    client = PlainClient(arena.scene, ("inline", 0))
    postgres.pause()
    try:
        in_flight = asyncio.create_task(client.step())
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(PlainClient(arena.scene, ("inline", 1)).step())
        began = time.monotonic()
        await asyncio.wait_for(waiting, 10)
        assert time.monotonic() - began > ANSWER_SECONDS / 2
        assert outcomes(arena)[-1] is Outcome.FAILED
        # From now on no commit waits, and what is in memory is read.
        began = time.monotonic()
        await client.step()
        assert outcomes(arena)[-1] is Outcome.FAILED
        await arena.clients.read()
        assert time.monotonic() - began < 1
        assert (await arena.scene.storage.condition()).refusal is not None
        assert not in_flight.done()
    finally:
        postgres.resume()
    await asyncio.wait_for(in_flight, 10)
    assert outcomes(arena)[-1] is Outcome.OK
    await arena.round()
    assert (await arena.scene.storage.condition()).refusal is None
    assert await arena.anomalies() == []


async def test_reads_of_a_server_that_pauses_fail_in_time(
    arena: FaultArena, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.storage.shared.readers._SECONDS", ANSWER_SECONDS)
    await arena.round()
    partition = arena.scene.partition(("inline", 0))
    cold = await arena.take_over(arena.database)
    postgres.pause()
    try:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(cold.read(partition, 0, 1000), 10)
    finally:
        postgres.resume()
    assert len((await cold.read(partition, 0, 1000)).data) > 0


async def test_a_storage_is_closed_though_the_server_does_not_answer(
    arena: FaultArena, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(engine, "_ANSWER_SECONDS", 30)
    storage = arena.scene.storage = await arena.take_over(arena.database)
    postgres.pause()
    try:
        commit = asyncio.create_task(PlainClient(arena.scene, ("inline", 0)).step())
        await asyncio.sleep(0.1)
        await asyncio.wait_for(storage.close(), 2)
        await commit
    finally:
        postgres.resume()
    assert outcomes(arena) == [Outcome.UNKNOWN] * 2
    assert await arena.anomalies() == []


async def test_a_fenced_storage_never_acknowledges_again(arena: FaultArena) -> None:
    await arena.round()
    first = arena.scene.storage
    partitions = [arena.scene.partition((path, 1)) for path in ("inline", "object")]
    arena.scene.storage = await arena.take_over(arena.database)
    under_way = [first.commit([append(partition, b"1:")]) for partition in partitions]
    for result in await asyncio.gather(*under_way, return_exceptions=True):
        assert isinstance(result, StorageFenced)
    for partition in partitions:
        with pytest.raises(StorageFenced):
            await first.commit([append(partition, b"1:")])
    with pytest.raises(StorageFenced):
        await first.barrier()
    assert (await first.condition()).refusal is not None
    await arena.clients.round()
    assert await arena.anomalies() == []


async def test_a_broker_that_takes_the_lease_again(arena: FaultArena) -> None:
    """Its new commits have other numbers than those of its first time: no answer is taken for another's."""
    broker = uuid4()
    for message in range(4):
        arena.scene.storage = await arena.take_over(arena.database, broker)
        arena.proxy.arm(ProxyFault(direction=Direction.TO_CLIENT, message=message, damage=Damage.CUT))
        await arena.clients.round()
        await arena.scene.storage.close()
        arena.scene.storage = await arena.take_over(arena.database)
        await arena.clients.round()
    assert arena.fenced == 0
    assert await arena.anomalies() == []


@pytest.mark.parametrize("direction", list(Direction), ids=lambda value: value.name.lower())
async def test_a_commit_in_doubt_when_the_lease_is_lost(arena: FaultArena, direction: Direction) -> None:
    """Its storage does not say that it counts, whether it does or not."""
    await arena.round()
    arena.proxy.arm(ProxyFault(direction=direction, message=0, damage=Damage.CUT))
    before = len(outcomes(arena))
    step = asyncio.create_task(PlainClient(arena.scene, ("inline", 0)).step())
    while not arena.proxy.fired:
        await asyncio.sleep(0)
    arena.proxy.refuse()
    await asyncio.sleep(0.3)
    successor = await arena.take_over(arena.direct)
    arena._opened[0]._lease.fenced("another broker has it")  # as a heartbeat of its broker finds out
    await asyncio.wait_for(step, 10)
    assert outcomes(arena)[before:] == [Outcome.UNKNOWN] * 2
    arena.scene.storage = successor
    await arena.clients.round()
    assert await arena.anomalies() == []


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with migrated_server() as server:
        yield server


def replace_by(server: PostgresServer, older: Path) -> None:
    """As if an asynchronous standby had been promoted that lags behind."""
    server.kill()
    shutil.rmtree(server.directory)
    shutil.copytree(older, server.directory, copy_function=shutil.copy2)
    _owned_as(older, server.directory)
    server.start()


def _owned_as(old: Path, new: Path) -> None:
    for source in (old, *old.rglob("*")):
        status = source.stat()
        shutil.chown(new / source.relative_to(old), status.st_uid, status.st_gid)


async def test_a_database_that_lost_commits_is_refused(
    own_server: PostgresServer, clock: ManualClock
) -> None:
    async with fault_arena(own_server, clock) as arena:
        await arena.round()
        older = own_server.directory.with_name("older")
        own_server.stop()
        shutil.copytree(own_server.directory, older)
        _owned_as(own_server.directory, older)
        own_server.start()
        await arena.round()
        await asyncio.to_thread(replace_by, own_server, older)
        with pytest.raises(StorageFenced, match=r"lost acknowledged commits.*asynchronous standby"):
            await arena.scene.storage.commit([append(arena.scene.partition(("inline", 0)), b"1:")])
        with pytest.raises(StorageFenced):
            await arena.scene.storage.commit([append(arena.scene.partition(("object", 0)), b"1:")])
        assert arena.fenced == 1


async def test_a_loss_is_noticed_though_no_connection_broke(arena: FaultArena) -> None:
    """A pool between broker and database may hide that the server was replaced."""
    await arena.round()
    connection = await arena.direct.connect("tests")
    await connection.execute("UPDATE committer SET number = number - 1 WHERE path = 0 AND number > 0")
    await connection.close()
    with pytest.raises(StorageFenced, match="lost acknowledged commits"):
        await arena.scene.storage.commit([append(arena.scene.partition(("inline", 0)), b"1:")])
    connection = await arena.direct.connect("tests")
    row = await (await connection.execute("SELECT loss FROM cluster")).fetchone()
    await connection.close()
    assert row is not None
    assert "was answered" in row[0]
