"""The scopes that a broker must hold for a commit.

State of groups, transactional ids and namespaces needs their scope, all other state that of the coordinator.
The end of a transaction is an exception: it writes offsets of any group, and that group's holder reads them
again. Progress of share groups and of queues does not name its group or namespace, so its scope is not
checked; nor is that of other state of namespaces whose key does not name one.

Any broker appends to logs, to transactions of others only what was admitted. Whether a log belongs to a scope
of namespaces, the database decides: every commit names all of these scopes that the broker serves.
"""

from collections.abc import Iterable, Sequence

from posthouse.model.scopes import (
    COORDINATOR,
    GROUPS,
    NAMESPACE_SCOPES,
    NAMESPACES,
    TRANSACTIONS,
    Scope,
    shard_of,
)
from posthouse.storage.operations import Append, Operation, Refer, Trim
from posthouse.storage.shared.database import ScopeNeeded
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.spaces import OF_GROUPS, OF_NAMESPACES, OF_TRANSACTIONS, Space

_NAMING_NAMESPACES = frozenset({Space.EXCHANGES, Space.BINDINGS, Space.QUEUES, Space.DELIVERY_LIMITS})


def scopes_of(operations: Sequence[Operation]) -> set[Scope]:
    """The scopes that the operations of one commit touch, as far as they tell."""
    found: set[Scope] = set()
    ends_transaction = False
    offsets: set[Scope] = set()
    for each in operations:
        if isinstance(each, Append):
            if each.header.is_control or (each.header.is_transactional and each.admission is None):
                found.add(each.scope or COORDINATOR)
                ends_transaction = ends_transaction or each.header.is_control
        elif isinstance(each, Trim):
            if each.scope is not None:
                found.add(each.scope)
        elif isinstance(each, Refer):
            continue
        elif each.space == Space.OFFSETS:
            offsets.add(GROUPS[shard_of(each.owner)])
        elif each.space in OF_GROUPS:
            if each.space != Space.SHARE_PROGRESS:
                found.add(GROUPS[shard_of(each.owner)])
        elif each.space in OF_TRANSACTIONS:
            ends_transaction = True
            if each.space != Space.ADMISSIONS:  # its key does not name the id; that is stored with it
                found.add(TRANSACTIONS[shard_of(each.owner)])
        elif each.space in _NAMING_NAMESPACES:
            found.add(NAMESPACES[shard_of(each.owner) % NAMESPACE_SCOPES])
        elif each.space not in OF_NAMESPACES:
            found.add(COORDINATOR)
    return found if ends_transaction else found | offsets


def check_scopes(lease: HeldLease, scopes: Iterable[Scope]) -> None:
    """Raises ScopeNeeded. The database checks it as well, and fences a broker that is wrong about it."""
    for scope in scopes:
        if not lease.holds(scope):
            raise ScopeNeeded(f"this broker does not hold the scope {scope}")
