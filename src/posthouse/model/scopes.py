"""Scopes: what one broker of a cluster does for all of them, in parts that can lie with different brokers.

A scope has one holder at a time. `coordinator` is everything that is not split: settings of topics, users and
permissions, and the housekeeping that looks at all logs together. Four kinds are spread over all brokers:

- Consumer groups and share groups, by the hash of their name. Both are in the same scopes, because a name
  belongs to a group of one kind only.
- Transactional ids, by the hash of what is before their last slash: ids of one job, `NAME/0`, `NAME/1` and so
  on, can be committed together, so they are in one scope.
- Namespaces with their exchanges, queues and delayed messages, by the hash of their name.
- Housekeeping of logs, by a hash of the number of the log. So the partitions of a large topic are spread,
  too. A hash, because numbers come in patterns: the data and the references of queues take turns, for
  example.

A broker that is alone holds all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

DEFAULT_NAMESPACE = "/"
GROUP_SCOPES = 64
TRANSACTION_SCOPES = GROUP_SCOPES
"""As many, because both use `shard_of`."""
NAMESPACE_SCOPES = 16
"""A divisor of the number of the others: see `shard_of_namespace`. Few clusters have more namespaces."""
HOUSEKEEPING_SCOPES = 16
_GROUPS = "groups"
_TRANSACTIONS = "transactions"
_NAMESPACES = "namespaces"
_HOUSEKEEPING = "housekeeping"
_GOLDEN_RATIO = 2654435761
"""Of 2^32: multiples of it are spread evenly."""


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def kind(self) -> str:
        """`coordinator`, `groups`, `transactions`, `namespaces` or `housekeeping`."""
        return self.name.partition("/")[0]

    @property
    def group_shard(self) -> int | None:
        """The number of a scope of groups; None for any other."""
        return self._shard_of_kind(_GROUPS)

    @property
    def transaction_shard(self) -> int | None:
        """The number of a scope of transactional ids; None for any other."""
        return self._shard_of_kind(_TRANSACTIONS)

    @property
    def namespace_shard(self) -> int | None:
        """The number of a scope of namespaces; None for any other."""
        return self._shard_of_kind(_NAMESPACES)

    @property
    def log_shard(self) -> int | None:
        """The number of a scope of housekeeping; None for any other."""
        return self._shard_of_kind(_HOUSEKEEPING)

    def _shard_of_kind(self, wanted: str) -> int | None:
        kind, _, shard = self.name.partition("/")
        return int(shard) if kind == wanted else None


COORDINATOR = Scope("coordinator")
GROUPS = tuple(Scope(f"{_GROUPS}/{number:02}") for number in range(GROUP_SCOPES))
TRANSACTIONS = tuple(Scope(f"{_TRANSACTIONS}/{number:02}") for number in range(TRANSACTION_SCOPES))
NAMESPACES = tuple(Scope(f"{_NAMESPACES}/{number:02}") for number in range(NAMESPACE_SCOPES))
HOUSEKEEPING = tuple(Scope(f"{_HOUSEKEEPING}/{number:02}") for number in range(HOUSEKEEPING_SCOPES))
SPREAD: Mapping[str, tuple[Scope, ...]] = MappingProxyType(
    {
        _GROUPS: GROUPS,
        _TRANSACTIONS: TRANSACTIONS,
        _NAMESPACES: NAMESPACES,
        _HOUSEKEEPING: HOUSEKEEPING,
    }
)
"""Those that are spread over all brokers, by kind."""
SCOPES = (COORDINATOR, *GROUPS, *TRANSACTIONS, *NAMESPACES, *HOUSEKEEPING)


def shard_of(owner: bytes) -> int:
    """The number of the scope that the state of this owner belongs to. The SQL function `shard_of` is the
    same."""
    return sha256(owner).digest()[0] % GROUP_SCOPES


def scope_of_group(group: str) -> Scope:
    return GROUPS[shard_of(group.encode())]


def job_of(transactional_id: bytes) -> bytes:
    """The part of the id that says where it is coordinated: all of it, unless it has a slash."""
    name, slash, _ = transactional_id.rpartition(b"/")
    return name if slash else transactional_id


def scope_of_transactional_id(id: str) -> Scope:
    return TRANSACTIONS[shard_of(job_of(id.encode()))]


def scope_of_job(name: str) -> Scope:
    """Of the transactional ids `NAME/…`."""
    return TRANSACTIONS[shard_of(name.encode())]


def scope_of_namespace(namespace: str) -> Scope:
    """Its holder serves the queues of the namespace, which AMQP calls a virtual host."""
    return NAMESPACES[shard_of_namespace(namespace)]


def shard_of_namespace(namespace: str) -> int:
    return shard_of(namespace.encode()) % NAMESPACE_SCOPES


def owner_shards(namespace_shard: int) -> range:
    """What `shard_of` gives for the names of the namespaces of this scope."""
    return range(namespace_shard, GROUP_SCOPES, NAMESPACE_SCOPES)


def shard_of_log(log: int) -> int:
    """The number of the scope that housekeeping of the log with this number in the database belongs to. The
    SQL function `shard_of_log` is the same."""
    return (log * _GOLDEN_RATIO % 2**32) >> 28


def scope_of_log(log: int) -> Scope:
    return HOUSEKEEPING[shard_of_log(log)]
