"""A database that has lost commits, as a promoted standby that was behind: storages notice it."""

import asyncio
from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.log_news import LogNews
from posthouse.storage.shared.administration.administration import accept_loss
from posthouse.storage.shared.commits.last_commits import LastCommits
from posthouse.storage.shared.database import CommitsLost, Database, DatabaseAway
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.removal import Removal
from tests.storage.batches import append, make_topic
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_member, take_lease
from tests.storage.shared.several.brokers import Brokers, until


async def recorded(database: Database) -> str:
    """The loss that no operator has accepted yet; empty if there is none."""
    return str(await asked(database, "SELECT coalesce(loss, '') FROM cluster"))


async def asked(database: Database, statement: str) -> object:
    connection = await database.connect("tests")
    try:
        row = await (await connection.execute(statement.encode())).fetchone()
        return None if row is None else row[0]
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "loss",
    ["UPDATE committer SET number = number - 1 WHERE path = 0", "DELETE FROM committer WHERE path = 0"],
    ids=["commits", "all commits"],
)
async def test_a_path_that_is_opened_again_does_not_hide_lost_commits(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock, loss: str
) -> None:
    """With the number that opening takes, the sum of all numbers would be as it was."""
    topic = make_topic()
    await shared.create_topics([topic])
    lease, last_commits = await take_lease(database, scopes=()), LastCommits()

    async def new_storage() -> SharedStorage:
        return await make_member(database, objects, clock, lease=lease, last_commits=last_commits)

    for _ in range(2):  # without a loss it goes on
        storage = await new_storage()
        await storage.open()
        await storage.commit([append(topic.partition(0), b"x")])
        await storage.close()
    await asked(database, f"{loss} RETURNING 1")
    with pytest.raises(CommitsLost, match="was answered"):
        await (await new_storage()).open()
    assert "was answered" in await recorded(database)
    # Once an operator has accepted the loss, it goes on with the numbers that are there.
    await accept_loss(database._conninfo)
    storage = await new_storage()
    await storage.open()
    await storage.commit([append(topic.partition(0), b"x")])
    await storage.close()
    assert await recorded(database) == ""


def is_fenced(storage: SharedStorage) -> bool:
    return isinstance(storage._state, CommitsLost)


@pytest.mark.parametrize("is_hinted", [False, True], ids=["read", "hinted"])
async def test_a_log_whose_end_goes_back(brokers: Brokers, database: Database, is_hinted: bool) -> None:
    """Its records were written by a broker that is gone."""
    _, gone, reader = brokers
    topic = make_topic()
    await brokers.create(topic)
    partition = topic.partition(0)
    if is_hinted:
        gone.grown(reader.hinted)
    for number in range(5):
        await gone.commit([append(partition, b"%d" % number)])
    if is_hinted:
        await until(lambda: reader.bounds(partition).end == 5)
    else:
        await reader.refresh([partition])
    await asked(database, "UPDATE log SET next = 3 RETURNING 1")
    with pytest.raises(CommitsLost, match="ends at offset 3, and ended at 5"):
        await reader.refresh([partition])
    assert is_fenced(reader)
    assert "ends at offset 3, and ended at 5" in await recorded(database)
    with pytest.raises(CommitsLost):
        reader.commit([append(partition, b"x")])


async def test_the_follower_notices_a_log_whose_end_goes_back(brokers: Brokers, database: Database) -> None:
    _, gone, reader = brokers
    topic = make_topic()
    await brokers.create(topic)
    partition = topic.partition(0)
    reader.subscribe(lambda partition, size: None, lambda: [partition])
    for number in range(5):
        await gone.commit([append(partition, b"%d" % number)])
    await until(lambda: reader.bounds(partition).end == 5)
    await asked(database, "UPDATE log SET next = 3 RETURNING 1")
    await until(lambda: is_fenced(reader))
    assert "ends at offset 3, and ended at 5" in await recorded(database)


async def test_a_loss_that_cannot_be_recorded_is_found_again(
    brokers: Brokers, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then no broker gives up its scopes: another would take them, and know nothing."""
    a, gone, _ = brokers
    topic = make_topic()
    await brokers.create(topic)
    partition = topic.partition(0)
    await gone.commit([append(partition, b"1", b"2")])
    await a.refresh([partition])
    await asked(database, "UPDATE log SET next = 1 RETURNING 1")
    ask = a._follower._ask

    async def without_record(statement: str, values: Any) -> Any:
        if "record_loss" in statement:
            raise DatabaseAway("away")
        return await ask(statement, values)

    monkeypatch.setattr(a._follower, "_ask", without_record)
    with pytest.raises(DatabaseAway):
        await a.refresh([partition])
    assert not is_fenced(a)
    monkeypatch.undo()
    with pytest.raises(CommitsLost, match="ends at offset 1, and ended at 2"):
        await a.refresh([partition])
    assert is_fenced(a)


async def test_news_during_a_query_are_no_loss(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is older than what the broker has learned meanwhile."""
    a, b, _ = brokers
    topic = make_topic()
    await brokers.create(topic)
    partition = topic.partition(0)
    await a.commit([append(partition, b"1")])
    ask = b._follower._ask

    async def overtaken(statement: str, values: Any) -> Any:
        rows = await ask(statement, values)
        await b.commit([append(partition, b"2")])
        b.hinted([LogNews(b._logs[partition].id, 0, 7, 7)])
        return rows

    monkeypatch.setattr(b._follower, "_ask", overtaken)
    await b.refresh([partition])
    assert not is_fenced(b)
    assert b.bounds(partition).end == 7


async def test_a_deleted_topic_is_no_loss(brokers: Brokers, database: Database) -> None:
    """Its logs are gone, and one of the same name begins anew."""
    a, b, _ = brokers
    topic = make_topic("orders")
    await brokers.create(topic)
    partition = topic.partition(0)
    await b.commit([append(partition, b"1")])
    known = b._logs[partition]
    await a.delete_topics([topic.id])
    await b._follower.refresh([known])
    await Removal(lambda: database.connect("tests"), a._lease, HousekeepingMetrics()).run_once()
    await b._follower.refresh([known])
    again = make_topic("orders")
    await brokers.create(again)
    await asyncio.gather(b.refresh([again.partition(0)]), b._follower.refresh([known]))
    assert not is_fenced(b)
