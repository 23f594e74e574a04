"""The scopes that a broker must hold for a commit.

The coordinator may do everything, except to write state of groups and of transactional ids: that needs the
scope of the group or the id. The end of a transaction is an exception: it writes offsets of any group, and
that group's holder reads them again. Progress of share groups does not name its group, so its scope is not
checked.

A broker that is not the coordinator appends to logs, to transactions of others only what was admitted, trims
logs whose housekeeping it does, and writes state of its groups and transactional ids.
"""

from collections.abc import Iterable, Sequence

from posthouse.model.scopes import COORDINATOR, GROUPS, TRANSACTIONS, Scope, shard_of
from posthouse.storage.operations import Append, Operation, Put, Trim
from posthouse.storage.shared.database import ScopeNeeded
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.spaces import OF_GROUPS, OF_TRANSACTIONS, Space


def scopes_of(operations: Sequence[Operation]) -> set[Scope]:
    """The scopes that the operations of one commit touch. Appends outside of transactions and those that were
    admitted touch none: whether a log is the coordinator's, the database decides."""
    found: set[Scope] = set()
    ends_transaction = False
    offsets: set[Scope] = set()
    for each in operations:
        if isinstance(each, Append):
            if each.header.is_control or (each.header.is_transactional and each.admission is None):
                found.add(each.scope or COORDINATOR)
                ends_transaction = ends_transaction or each.header.is_control
        elif isinstance(each, Trim):
            found.add(each.scope or COORDINATOR)
        elif not isinstance(each, Put):
            found.add(COORDINATOR)
        elif each.space == Space.OFFSETS:
            offsets.add(GROUPS[shard_of(each.owner)])
        elif each.space in OF_GROUPS:
            if each.space != Space.SHARE_PROGRESS:
                found.add(GROUPS[shard_of(each.owner)])
        elif each.space in OF_TRANSACTIONS:
            ends_transaction = True
            if each.space != Space.ADMISSIONS:  # its key does not name the id; that is stored with it
                found.add(TRANSACTIONS[shard_of(each.owner)])
        elif each.space != Space.REFERRALS or each.value is None:
            found.add(COORDINATOR)
    return found if ends_transaction else found | offsets


def check_scopes(lease: HeldLease, scopes: Iterable[Scope]) -> None:
    """Raises ScopeNeeded. The database checks it as well, and fences a broker that is wrong about it."""
    for scope in scopes:
        if not lease.holds(scope):
            raise ScopeNeeded(f"this broker does not hold the scope {scope}")
