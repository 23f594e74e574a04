"""What one connection may do, what is remembered of that, and what is written down."""

from typing import Any

import pytest

from posthouse.broker.access import guard as guard_module
from posthouse.broker.access.acls import Acl, Acls
from posthouse.broker.access.audit import Audit
from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.guard import CLOSED, AclGuard, DecisionCache, OpenGuard
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.access.principal import ANONYMOUS, Principal
from posthouse.model.clock import ManualClock
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage

_O = Operation


class Notes(Audit):
    """Keeps what would be written."""

    def __init__(self) -> None:
        super().__init__(None, ManualClock())
        self.lines: list[tuple[str, str, bool]] = []

    @property
    def is_on(self) -> bool:
        return True

    def record(self, principal, peer, protocol, action, resource, *, allowed, detail="") -> int:  # type: ignore[no-untyped-def]
        assert (peer, protocol) == (PEER, "kafka")
        self.lines.append((str(action), resource, allowed))
        return len(self.lines) if allowed else 0


PEER = "10.0.0.1:4711"


async def acls_of(*rules: tuple[Operation, Kind, str], host: str = "*") -> Acls:
    acls = Acls(MemoryStorage(ManualClock()))
    await acls.add(
        [
            Acl(kind=kind, name=name, principal="User:ann", host=host, operation=operation)
            for operation, kind, name in rules
        ]
    )
    return acls


def guard_of(acls: Acls, notes: Notes | None = None, *, is_super: bool = False) -> AclGuard:
    return AclGuard(Principal("ann"), acls, notes or Notes(), PEER, "kafka", is_super=is_super)


async def test_what_is_written_down() -> None:
    notes = Notes()
    guard = guard_of(await acls_of((_O.READ, Kind.TOPIC, "t"), (_O.DELETE, Kind.TOPIC, "t")), notes)
    assert guard.allows(_O.READ, Kind.TOPIC, "t")
    assert not notes.lines
    assert guard.allows(_O.DELETE, Kind.TOPIC, "t")
    assert not guard.allows(_O.WRITE, Kind.TOPIC, "t")
    assert notes.lines == [("delete", "topic:t", True), ("write", "topic:t", False)]
    assert guard.may(_O.DELETE, Kind.TOPIC, "t")
    assert not guard.may(_O.WRITE, Kind.TOPIC, "t")
    assert guard.sees(Kind.TOPIC, "t")
    assert not guard.sees(Kind.TOPIC, "other")
    assert len(notes.lines) == 2
    guard.note("set-credential", "user:ben", "SCRAM-SHA-256")
    assert notes.lines[2:] == [("set-credential", "user:ben", True)]


async def test_some() -> None:
    notes = Notes()
    guard = guard_of(await acls_of((_O.READ, Kind.TOPIC, "t")), notes)
    assert guard.allows_some(_O.READ, Kind.TOPIC)
    assert not notes.lines
    assert not guard.allows_some(_O.WRITE, Kind.TOPIC)
    assert notes.lines == [("write", "topic:any", False)]


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ((_O.CREATE, Kind.TOPIC, "t"), True),
        ((_O.CREATE, Kind.CLUSTER, CLUSTER), True),
        ((_O.CREATE, Kind.TOPIC, "tt"), False),
        ((_O.ALTER, Kind.CLUSTER, CLUSTER), False),
    ],
)
async def test_here_or_everywhere(rule: tuple[Operation, Kind, str], allowed: bool) -> None:
    notes = Notes()
    guard = guard_of(await acls_of(rule), notes)
    assert guard.allows_here_or_everywhere(_O.CREATE, Kind.TOPIC, "t") is allowed
    assert notes.lines == [("create", "topic:t", allowed)]


async def test_an_answer_is_remembered_until_a_permission_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    acls = await acls_of((_O.READ, Kind.TOPIC, "t"))
    asked: list[tuple[object, ...]] = []
    allow = acls.allow

    def counted(*given: Any) -> bool:
        asked.append(given)
        return allow(*given)

    monkeypatch.setattr(acls, "allow", counted)
    guard = guard_of(acls)
    for _ in range(3):
        assert guard.may(_O.READ, Kind.TOPIC, "t")
    assert len(asked) == 1
    await acls.remove(lambda acl: True)
    assert not guard.may(_O.READ, Kind.TOPIC, "t")
    assert len(asked) == 2


async def test_names_that_clients_make_up_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "_MOST_REMEMBERED", 10)
    guard = guard_of(await acls_of())
    for number in range(100):
        assert not guard.may(_O.READ, Kind.TOPIC, str(number))
        assert not guard.may(_O.READ, Kind.TOPIC, str(number) + "x" * 1000)
        assert len(guard._answers.known) <= 11
    assert all(len(name) < 1000 for _, _, name in guard._answers.known)


@pytest.mark.parametrize(
    ("peer", "host"), [("10.0.0.1:1", "10.0.0.1"), ("[::1]:1", "::1"), ("10.0.0.11:1", "10.0.0.11")]
)
async def test_where_somebody_comes_from(peer: str, host: str) -> None:
    for permitted in ("10.0.0.1", "::1", "10.0.0.11"):
        acls = await acls_of((_O.READ, Kind.TOPIC, "t"), host=permitted)
        guard = AclGuard(Principal("ann"), acls, Audit(None, ManualClock()), peer, "kafka", is_super=False)
        assert guard.may(_O.READ, Kind.TOPIC, "t") is (permitted == host)


async def test_a_superuser_may_do_everything() -> None:
    acls = await acls_of()
    await acls.add([Acl(kind=Kind.TOPIC, name="*", principal="User:ann", operation=_O.ALL, allow=False)])
    notes = Notes()
    guard = guard_of(acls, notes, is_super=True)
    assert guard.allows(_O.DELETE, Kind.TOPIC, "t")
    assert guard.allows_some(_O.WRITE, Kind.TOPIC)
    assert guard.sees(Kind.GROUP, "g")
    assert notes.lines == [("delete", "topic:t", True)]


def test_while_nobody_has_to_log_in() -> None:
    notes = Notes()
    guard = OpenGuard(notes, PEER, "kafka")
    assert guard.principal == ANONYMOUS
    assert guard.allows(_O.READ, Kind.TOPIC, "t")
    assert guard.allows(_O.DELETE, Kind.TOPIC, "t")
    assert guard.allows_here_or_everywhere(_O.CREATE, Kind.TOPIC, "t")
    assert guard.allows_some(_O.WRITE, Kind.TOPIC)
    guard.note("alter-quota", "quota:user=ann")
    assert notes.lines == [
        ("delete", "topic:t", True),
        ("create", "topic:t", True),
        ("alter-quota", "quota:user=ann", True),
    ]


def test_before_a_login_nothing_is_allowed() -> None:
    assert not CLOSED.allows(_O.READ, Kind.TOPIC, "t")
    assert not CLOSED.may(_O.READ, Kind.TOPIC, "t")
    assert not CLOSED.sees(Kind.TOPIC, "t")
    assert not CLOSED.allows_some(_O.READ, Kind.TOPIC)
    assert not CLOSED.allows_here_or_everywhere(_O.CREATE, Kind.TOPIC, "t")


async def test_connections_of_a_user_share_what_they_were_told() -> None:
    """Else names that are made up would take memory for each of thousands of connections."""
    acls = await acls_of((_O.READ, Kind.TOPIC, "t"))
    answers = DecisionCache()
    first, second = (
        AclGuard(Principal("ann"), acls, Notes(), PEER, "kafka", is_super=False, answers=answers)
        for _ in range(2)
    )
    assert first.may(_O.READ, Kind.TOPIC, "t") and second.may(_O.READ, Kind.TOPIC, "t")
    assert not second.may(_O.READ, Kind.TOPIC, "u")
    assert len(answers.known) == 2
    await acls.remove(lambda acl: True)
    assert not first.may(_O.READ, Kind.TOPIC, "t")


async def test_they_are_those_of_one_user_at_one_address() -> None:
    storage = MemoryStorage(ManualClock())
    access = AccessControl(storage, Settings(memory=True), ManualClock())
    made = {
        (name, peer): access.guard(Principal(name), peer, "kafka")
        for name in ("ann", "ben")
        for peer in ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1")
    }
    assert len(access._answers) == 4
    del made[("ann", "10.0.0.2:1")]
    assert len(access._answers) == 3
