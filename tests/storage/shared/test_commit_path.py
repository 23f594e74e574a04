"""Which commits go into one call of the database."""

import asyncio
from typing import Any, cast

from posthouse.model.scopes import COORDINATOR, NAMESPACES, TRANSACTIONS, Scope
from posthouse.storage.shared.commits.commit_group import CommitGroup, PendingCommit
from posthouse.storage.shared.commits.commit_path import CommitPath


def waiting(served: set[Scope], *scopes: Scope) -> PendingCommit:
    done = asyncio.get_running_loop().create_future()
    return PendingCommit([], 1, done, {}, frozenset(scopes), frozenset(served))


async def test_commits_from_before_a_namespace_was_served_are_not_mixed_with_later_ones() -> None:
    """What one commit of a call may write to, all of them may: a record of a broker that does not know that
    its topic feeds queues, not yet or not any more, would be in none of them."""
    path = CommitPath(cast("Any", None))
    one, other = NAMESPACES[:2]
    commits = [
        waiting(set()),
        waiting(set(), COORDINATOR, TRANSACTIONS[3]),
        waiting({one}),
        waiting({one}, TRANSACTIONS[3]),
        waiting({one, other}),
        waiting({other}),
        waiting({other}, COORDINATOR),
        waiting(set()),
    ]
    for each in commits:
        path.add(each)
    taken = [path.take(100) for _ in range(5)]
    assert taken == [commits[:2], commits[2:4], commits[4:5], commits[5:7], commits[7:]]
    assert not path.waiting and path.waiting_bytes == 0
    assert [CommitGroup(each).scopes for each in taken] == [
        {COORDINATOR, TRANSACTIONS[3]},
        {one, TRANSACTIONS[3]},
        {one, other},
        {other, COORDINATOR},
        set(),
    ]
