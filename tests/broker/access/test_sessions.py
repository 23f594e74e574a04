"""Who is connected."""

from uuid import uuid4

import pytest

from posthouse.broker.access.sessions import Sessions
from posthouse.broker.cluster_usage import ClusterUsage
from posthouse.model.clock import ManualClock
from posthouse.model.errors import LoginFailed
from posthouse.model.usage import Limited, Use


def test_a_user_cannot_take_all_connections() -> None:
    sessions = Sessions(2)
    first = sessions.enter("ann", lambda: None)
    sessions.enter("ann", lambda: None)
    with pytest.raises(LoginFailed, match="max_connections_per_user"):
        sessions.enter("ann", lambda: None)
    sessions.enter("ben", lambda: None)
    sessions.exit("ann", first)
    sessions.enter("ann", lambda: None)
    assert (sessions.count("ann"), sessions.count("ben"), sessions.count("cat")) == (2, 1, 0)


def test_no_limit() -> None:
    sessions = Sessions(0)
    for _ in range(100):
        sessions.enter("ann", lambda: None)
    assert sessions.count("ann") == 100


def test_sent_away() -> None:
    sessions = Sessions(0)
    left: list[str] = []

    def entered(user: str) -> None:
        def leave() -> None:
            left.append(user)
            sessions.exit(user, number)

        number = sessions.enter(user, leave)

    for user in ("ann", "ann", "ben"):
        entered(user)
    sessions.disconnect("ann")
    assert left == ["ann", "ann"]
    assert (sessions.count("ann"), sessions.count("ben")) == (0, 1)
    sessions.disconnect("ann")
    sessions.exit("ann", 1)


def test_connections_at_other_brokers_count() -> None:
    other = uuid4()
    cluster = ClusterUsage(b"secret", ManualClock(), lambda: [other])
    sessions = Sessions(3, cluster)
    sessions.enter("ann", lambda: None)
    cluster.told(other, cluster.report([Use(Limited.USER, "ann", 2, 3)]))
    with pytest.raises(LoginFailed, match="max_connections_per_user"):
        sessions.enter("ann", lambda: None)
    sessions.enter("ben", lambda: None)
    cluster.told(other, cluster.report([Use(Limited.USER, "ann", 1, 3)]))
    sessions.enter("ann", lambda: None)
    cluster.told(other, cluster.report([Use(Limited.USER, "cat", 3, 3)]))
    with pytest.raises(LoginFailed):
        sessions.enter("cat", lambda: None)
    assert sessions.count("cat") == 0 and "cat" not in sessions._by_user


def test_relayed_connections_are_counted_by_the_broker_that_relays() -> None:
    sessions = Sessions(1)
    left: list[int] = []
    relayed = [sessions.enter("ann", lambda: left.append(1), is_relayed=True) for _ in range(3)]
    sessions.enter("ann", lambda: left.append(2))
    assert sessions.count("ann") == 1
    sessions.disconnect("ann")
    assert left == [1, 1, 1, 2], "they end with the user"
    for each in relayed:
        sessions.exit("ann", each)
    assert sessions.count("ann") == 1
    with pytest.raises(LoginFailed):
        sessions.enter("ann", lambda: None)


def test_others_are_told_who_has_many_connections() -> None:
    sessions = Sessions(10)
    for user, count in (("ann", 1), ("ben", 3)):
        for _ in range(count):
            sessions.enter(user, lambda: None)
    sessions.enter("cat", lambda: None, is_relayed=True)
    assert list(sessions.uses(0.2)) == [Use(Limited.USER, "ben", 3, 10)]
    assert {each.name for each in sessions.uses(0.01)} == {"ann", "ben"}
    assert list(Sessions(0).uses(0.0)) == []
