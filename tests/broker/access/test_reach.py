"""Whether somebody has anything to do where names begin in some way: how a namespace is entered."""

import pytest

from posthouse.broker.access.acls import Acl, Acls, Pattern
from posthouse.broker.access.audit import Audit
from posthouse.broker.access.guard import CLOSED, AclGuard, OpenGuard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.principal import Principal
from posthouse.model.clock import SystemClock
from posthouse.storage.memory.engine import MemoryStorage

ANN = Principal("ann")
PREFIXES = ("other..", "x.other")
PEER = "192.0.2.7:4711"


def acl(
    name: str,
    pattern: Pattern = Pattern.LITERAL,
    *,
    principal: str = "User:ann",
    kind: Kind = Kind.TOPIC,
    host: str = "*",
    allow: bool = True,
) -> Acl:
    return Acl(
        kind=kind,
        name=name,
        pattern=pattern,
        principal=principal,
        host=host,
        operation=Operation.READ,
        allow=allow,
    )


@pytest.mark.parametrize(
    ("permission", "reaches"),
    [
        (acl("other..q"), True),
        (acl("other..q", principal="User:*"), True),
        (acl("other..q", host="192.0.2.7"), True),
        (acl("x.other-strange.0123456789ab"), True),
        (acl("*"), True),
        (acl("other..", Pattern.PREFIXED), True),
        (acl("other..q", Pattern.PREFIXED), True),
        (acl("oth", Pattern.PREFIXED), True),
        (acl("oth"), False),
        (acl("other"), False),
        (acl("another..q"), False),
        (acl("q", Pattern.PREFIXED), False),
        (acl("other..q", principal="User:bob"), False),
        (acl("other..q", host="192.0.2.8"), False),
        (acl("other..q", kind=Kind.GROUP), False),
        (acl("other..q", allow=False), False),
    ],
    ids=str,
)
async def test_reach(permission: Acl, reaches: bool) -> None:
    storage = MemoryStorage(SystemClock())
    await storage.open()
    acls = Acls(storage)
    await acls.add([permission])
    audit = Audit(None, SystemClock())
    guard = AclGuard(ANN, acls, audit, PEER, "amqp", is_super=False)
    assert guard.reaches(Kind.TOPIC, PREFIXES) is reaches
    assert AclGuard(ANN, acls, audit, PEER, "amqp", is_super=True).reaches(Kind.TOPIC, PREFIXES)
    await acls.remove(lambda _: True)
    assert not guard.reaches(Kind.TOPIC, PREFIXES)
    await storage.close()


def test_whoever_is_not_asked_reaches_everything() -> None:
    assert OpenGuard(Audit(None, SystemClock()), PEER, "amqp").reaches(Kind.TOPIC, PREFIXES)


def test_whoever_has_not_logged_in_reaches_nothing() -> None:
    assert not CLOSED.reaches(Kind.TOPIC, PREFIXES)
