"""A database that has lost commits, as a promoted standby that was behind: storages notice it."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.administration.administration import accept_loss
from posthouse.storage.shared.commits.last_commits import LastCommits
from posthouse.storage.shared.database import CommitsLost, Database
from posthouse.storage.shared.engine import SharedStorage
from tests.storage.batches import append, make_topic
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import TestLease, make_member


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
    broker, last_commits = TestLease(), LastCommits()

    def new_storage() -> SharedStorage:
        return make_member(database, objects, clock, member=broker, last_commits=last_commits)

    for _ in range(2):  # without a loss it goes on
        storage = new_storage()
        await storage.open()
        await storage.commit([append(topic.partition(0), b"x")])
        await storage.close()
    await asked(database, f"{loss} RETURNING 1")
    with pytest.raises(CommitsLost, match="was answered"):
        await new_storage().open()
    assert "was answered" in await recorded(database)
    # Once an operator has accepted the loss, it goes on with the numbers that are there.
    await accept_loss(database._conninfo)
    storage = new_storage()
    await storage.open()
    await storage.commit([append(topic.partition(0), b"x")])
    await storage.close()
    assert await recorded(database) == ""
