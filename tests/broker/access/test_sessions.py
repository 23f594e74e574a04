"""Who is connected."""

import pytest

from posthouse.broker.access.sessions import Sessions
from posthouse.model.errors import LoginFailed


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
