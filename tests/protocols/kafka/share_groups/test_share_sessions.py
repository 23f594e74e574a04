"""Share sessions: who gets one when there are too many."""

import pytest

from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.kafka.share_groups import sessions as sessions_module
from posthouse.protocols.kafka.share_groups.errors import TooManyShareSessions
from posthouse.protocols.kafka.share_groups.sessions import ShareSessions

GROUP = GroupId("g")


class Line:
    is_open = True
    way: object = None


def test_a_connection_with_many_sessions_shuts_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "_MOST", 10)
    sessions = ShareSessions()
    mine = Line()
    sessions.open(GROUP, MemberId("mine"), mine)
    greedy = Line()
    for number in range(9):
        sessions.open(GROUP, MemberId(f"greedy-{number}"), greedy)
    with pytest.raises(TooManyShareSessions):
        sessions.open(GROUP, MemberId("greedy-9"), greedy)
    sessions.open(GROUP, MemberId("new"), Line())
    assert len(list(sessions)) == 10
    assert sessions.find(GROUP, MemberId("greedy-0")) is None
    assert sessions.find(GROUP, MemberId("mine")) is not None
    sessions.open(GROUP, MemberId("greedy-1"), greedy)  # in the place of its own


def test_where_everybody_has_one_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "_MOST", 3)
    sessions = ShareSessions()
    for number in range(3):
        sessions.open(GROUP, MemberId(f"m{number}"), Line())
    with pytest.raises(TooManyShareSessions):
        sessions.open(GROUP, MemberId("m3"), Line())


def test_a_member_has_a_session_with_each_broker() -> None:
    sessions = ShareSessions()
    here, there = Line(), Line()
    there.way = "another broker"
    member = MemberId("m")
    first, second = sessions.open(GROUP, member, here), sessions.open(GROUP, member, there)
    assert sessions.follow(GROUP, member, 1, here) is first
    assert sessions.follow(GROUP, member, 1, there) is second
    assert list(sessions.of(GROUP, member)) == [first, second]
    again = sessions.open(GROUP, member, there)
    assert list(sessions.of(GROUP, member)) == [first, again]
    sessions.close(second)  # was replaced
    assert len(sessions) == 2
    sessions.close(first)
    sessions.close(again)
    assert (len(sessions), list(sessions.of(GROUP, member))) == (0, [])
