"""Users with different permissions, and what each of them may do, written down by hand."""

from collections.abc import Mapping
from dataclasses import dataclass

from posthouse.broker.access.acls import Acl, Pattern
from posthouse.broker.access.operations import CLUSTER, Kind, Operation

TOPIC, GROUP, TRANSACTION = "t", "g", "t-x"
"""What the requests of the tests are about."""
PASSWORD = "secret"
SUPERUSER = "admin"

_O = Operation
_NAMES = {Kind.TOPIC: TOPIC, Kind.GROUP: GROUP, Kind.TRANSACTIONAL_ID: TRANSACTION, Kind.CLUSTER: CLUSTER}
EVERYTHING = frozenset(Operation)
Allowed = Mapping[Kind, frozenset[Operation]]


@dataclass(frozen=True)
class Role:
    name: str
    acls: tuple[Acl, ...]
    allowed: Allowed
    writes_elsewhere: bool = False
    """To topics that the requests are not about."""

    def may(self, operation: Operation, kind: Kind) -> bool:
        return operation in self.allowed.get(kind, frozenset())


def _acl(
    user: str,
    kind: Kind,
    operation: Operation = _O.ALL,
    name: str | None = None,
    pattern: Pattern = Pattern.LITERAL,
    *,
    allow: bool = True,
) -> Acl:
    return Acl(
        kind=kind,
        name=_NAMES[kind] if name is None else name,
        pattern=pattern,
        principal=f"User:{user}",
        operation=operation,
        allow=allow,
    )


def _everything(user: str) -> tuple[Acl, ...]:
    return tuple(_acl(user, kind, name=CLUSTER if kind is Kind.CLUSTER else "*") for kind in Kind)


def _single(user: str, kind: Kind) -> Role:
    return Role(user, (_acl(user, kind),), {kind: EVERYTHING})


ROLES = (
    Role(SUPERUSER, (), dict.fromkeys(Kind, EVERYTHING)),
    Role("everything", _everything("everything"), dict.fromkeys(Kind, EVERYTHING)),
    _single("topic", Kind.TOPIC),
    _single("group", Kind.GROUP),
    _single("cluster", Kind.CLUSTER),
    _single("transaction", Kind.TRANSACTIONAL_ID),
    Role(
        "reader",
        (_acl("reader", Kind.TOPIC, _O.READ), _acl("reader", Kind.GROUP, _O.READ)),
        {Kind.TOPIC: frozenset({_O.READ, _O.DESCRIBE}), Kind.GROUP: frozenset({_O.READ, _O.DESCRIBE})},
    ),
    Role(
        "writer",
        (_acl("writer", Kind.TOPIC, _O.WRITE), _acl("writer", Kind.TRANSACTIONAL_ID, _O.WRITE)),
        {
            Kind.TOPIC: frozenset({_O.WRITE, _O.DESCRIBE}),
            Kind.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE}),
        },
    ),
    Role(
        "viewer",
        tuple(_acl("viewer", kind, _O.DESCRIBE) for kind in Kind),
        dict.fromkeys(Kind, frozenset({_O.DESCRIBE})),
    ),
    Role(
        "configurer",
        tuple(_acl("configurer", kind, _O.ALTER_CONFIGS) for kind in (Kind.TOPIC, Kind.GROUP, Kind.CLUSTER)),
        dict.fromkeys(
            (Kind.TOPIC, Kind.GROUP, Kind.CLUSTER), frozenset({_O.ALTER_CONFIGS, _O.DESCRIBE_CONFIGS})
        ),
    ),
    Role(
        "remover",
        (_acl("remover", Kind.TOPIC, _O.DELETE), _acl("remover", Kind.GROUP, _O.DELETE)),
        {Kind.TOPIC: frozenset({_O.DELETE, _O.DESCRIBE}), Kind.GROUP: frozenset({_O.DELETE, _O.DESCRIBE})},
    ),
    Role(
        "committer",
        (_acl("committer", Kind.GROUP), _acl("committer", Kind.TRANSACTIONAL_ID)),
        {Kind.GROUP: EVERYTHING, Kind.TRANSACTIONAL_ID: EVERYTHING},
    ),
    Role(
        "operator",
        (_acl("operator", Kind.CLUSTER, _O.ALTER),),
        {Kind.CLUSTER: frozenset({_O.ALTER, _O.DESCRIBE})},
    ),
    Role(
        "node",
        (_acl("node", Kind.CLUSTER, _O.CLUSTER_ACTION),),
        {Kind.CLUSTER: frozenset({_O.CLUSTER_ACTION})},
    ),
    Role(
        "prefixed",
        (
            _acl("prefixed", Kind.TOPIC, name="t", pattern=Pattern.PREFIXED),
            _acl("prefixed", Kind.GROUP, name="g", pattern=Pattern.PREFIXED),
            _acl("prefixed", Kind.TRANSACTIONAL_ID, name="t-", pattern=Pattern.PREFIXED),
        ),
        dict.fromkeys((Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID), EVERYTHING),
    ),
    Role(
        "denied",
        (*_everything("denied"), *(_acl("denied", kind, allow=False) for kind in Kind)),
        {},
        writes_elsewhere=True,
    ),
    Role(
        "elsewhere",
        (_acl("elsewhere", Kind.TOPIC, name="tt"), _acl("elsewhere", Kind.GROUP, name="gg")),
        {},
        writes_elsewhere=True,
    ),
    Role("nobody", (), {}),
)
