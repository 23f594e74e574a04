"""Which commits go into one call of the database."""

import asyncio
from typing import Any, cast

from posthouse.model.scopes import COORDINATOR, TRANSACTIONS, Scope
from posthouse.storage.shared.commits.commit_group import PendingCommit
from posthouse.storage.shared.commits.commit_path import CommitPath


def waiting(*scopes: Scope) -> PendingCommit:
    done = asyncio.get_running_loop().create_future()
    return PendingCommit([], 1, done, {}, {}, frozenset(scopes))


async def test_commits_in_the_name_of_the_coordinator_are_not_mixed_with_others() -> None:
    """A broker that has just stopped to coordinate may have both. What one commit of a call may do, all of
    them may: a marker without references, or a record for a queue that is not loaded any more."""
    path = CommitPath(cast("Any", None))
    commits = [
        waiting(COORDINATOR),
        waiting(COORDINATOR, TRANSACTIONS[3]),
        waiting(TRANSACTIONS[3]),
        waiting(),
        waiting(COORDINATOR),
    ]
    for each in commits:
        path.add(each)
    taken = [path.take(100) for _ in range(3)]
    assert taken == [commits[:2], commits[2:4], commits[4:]]
    assert not path.waiting and path.waiting_bytes == 0
