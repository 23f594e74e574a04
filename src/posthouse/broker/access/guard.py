"""Authorization of one connection: checked before every operation."""

from collections.abc import Sequence
from typing import Protocol

from posthouse.broker.access.acls import Acls
from posthouse.broker.access.audit import Audit
from posthouse.broker.access.operations import CHANGING, CLUSTER, Kind, Operation
from posthouse.broker.access.principal import ANONYMOUS, Principal

_MOST_REMEMBERED = 10_000
_LONGEST_REMEMBERED = 300
"""Limit on the length of cached names: clients may send names of any length."""


class Guard(Protocol):
    @property
    def principal(self) -> Principal: ...

    @property
    def last_change(self) -> int:
        """Number of the last audited change: the answer is sent once it is on disk."""

    def allows(self, operation: Operation, kind: Kind, name: str) -> bool:
        """Whether the operation is allowed. Refusals and changes are audited."""

    def sees(self, kind: Kind, name: str) -> bool:
        """Whether a list may include the resource, which the client did not ask for by name."""

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        """The same decision as `allows`, without an audit entry."""

    def allows_some(self, operation: Operation, kind: Kind) -> bool:
        """Whether the operation is allowed on any resource of the kind."""

    def allows_here_or_everywhere(self, operation: Operation, kind: Kind, name: str) -> bool:
        """As `allows`; permission for the operation on the cluster is enough, too."""

    def reaches(self, kind: Kind, prefixes: Sequence[str]) -> bool:
        """Whether any operation is allowed on names with one of these prefixes."""

    def note(self, action: str, resource: str, detail: str = "") -> None:
        """Audit an operation that was done. `detail` must not contain secrets."""

    def note_refused(self, action: str, resource: str, detail: str = "") -> None:
        """Audit an operation that was refused for another reason than a missing permission."""


class OpenGuard:
    """Login is not required: every operation is allowed."""

    def __init__(self, audit: Audit, peer: str, protocol: str) -> None:
        self.principal = ANONYMOUS
        self.last_change = 0
        self._audit = audit
        self._peer = peer
        self._protocol = protocol

    def allows(self, operation: Operation, kind: Kind, name: str) -> bool:
        if operation in CHANGING and self._audit.is_on:
            self.note(operation, f"{kind}:{name}")
        return True

    def sees(self, kind: Kind, name: str) -> bool:
        return True

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        return True

    def allows_some(self, operation: Operation, kind: Kind) -> bool:
        return True

    def allows_here_or_everywhere(self, operation: Operation, kind: Kind, name: str) -> bool:
        return self.allows(operation, kind, name)

    def reaches(self, kind: Kind, prefixes: Sequence[str]) -> bool:
        return True

    def note(self, action: str, resource: str, detail: str = "") -> None:
        self.last_change = self._audit.record(
            self.principal, self._peer, self._protocol, action, resource, allowed=True, detail=detail
        )

    def note_refused(self, action: str, resource: str, detail: str = "") -> None:
        self._audit.record(
            self.principal, self._peer, self._protocol, action, resource, allowed=False, detail=detail
        )


class DecisionCache:
    """Cached decisions for a principal at an address, until an ACL changes. All connections of that principal
    share them: there may be thousands of connections, and clients may send any number of names."""

    __slots__ = ("__weakref__", "known", "version")

    def __init__(self) -> None:
        self.version = -1
        self.known: dict[tuple[Operation, Kind, str], bool] = {}


class AclGuard:
    """The guard of an authenticated connection."""

    def __init__(
        self,
        principal: Principal,
        acls: Acls,
        audit: Audit,
        peer: str,
        protocol: str,
        *,
        is_super: bool,
        answers: DecisionCache | None = None,
    ) -> None:
        """`answers` is the cache of the same principal and host."""
        self.principal = principal
        self.last_change = 0
        self._acls = acls
        self._audit = audit
        self._peer = peer
        self._host = host_of(peer)
        self._protocol = protocol
        self._is_super = is_super
        self._answers = answers or DecisionCache()

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        if self._is_super:
            return True
        answers = self._answers
        if answers.version != self._acls.version or len(answers.known) > _MOST_REMEMBERED:
            answers.known.clear()
            answers.version = self._acls.version
        asked = (operation, kind, name)
        answer = answers.known.get(asked)
        if answer is None:
            answer = self._acls.allow(self.principal, self._host, operation, kind, name)
            if len(name) <= _LONGEST_REMEMBERED:
                answers.known[asked] = answer
        return answer

    def allows(self, operation: Operation, kind: Kind, name: str) -> bool:
        answer = self.may(operation, kind, name)
        if not answer or operation in CHANGING:
            self._record(operation, kind, name, answer)
        return answer

    def sees(self, kind: Kind, name: str) -> bool:
        return self.may(Operation.DESCRIBE, kind, name)

    def allows_some(self, operation: Operation, kind: Kind) -> bool:
        if self._is_super or self._acls.allow_some(self.principal, self._host, operation, kind):
            return True
        self.note_refused(operation, f"{kind}:any")
        return False

    def allows_here_or_everywhere(self, operation: Operation, kind: Kind, name: str) -> bool:
        answer = self.may(operation, Kind.CLUSTER, CLUSTER) or self.may(operation, kind, name)
        if not answer or operation in CHANGING:
            self._record(operation, kind, name, answer)
        return answer

    def reaches(self, kind: Kind, prefixes: Sequence[str]) -> bool:
        answer = self._is_super or self._acls.reach(self.principal, self._host, kind, prefixes)
        if not answer:
            self._record(Operation.DESCRIBE, kind, f"{prefixes[0]}*", answer)
        return answer

    def note(self, action: str, resource: str, detail: str = "") -> None:
        self.last_change = self._audit.record(
            self.principal, self._peer, self._protocol, action, resource, allowed=True, detail=detail
        )

    def note_refused(self, action: str, resource: str, detail: str = "") -> None:
        self._audit.record(
            self.principal, self._peer, self._protocol, action, resource, allowed=False, detail=detail
        )

    def _record(self, operation: Operation, kind: Kind, name: str, answer: bool) -> None:
        if answer:
            self.note(operation, f"{kind}:{name}")
        else:
            self.note_refused(operation, f"{kind}:{name}")


def host_of(peer: str) -> str:
    """The host of the peer, as ACLs write it."""
    return peer.rpartition(":")[0].strip("[]")


class ClosedGuard:
    """The guard of a connection before login: nothing is allowed."""

    principal = ANONYMOUS
    last_change = 0

    def allows(self, operation: Operation, kind: Kind, name: str) -> bool:
        return False

    def sees(self, kind: Kind, name: str) -> bool:
        return False

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        return False

    def allows_some(self, operation: Operation, kind: Kind) -> bool:
        return False

    def allows_here_or_everywhere(self, operation: Operation, kind: Kind, name: str) -> bool:
        return False

    def reaches(self, kind: Kind, prefixes: Sequence[str]) -> bool:
        return False

    def note(self, action: str, resource: str, detail: str = "") -> None:
        raise AssertionError("no operation is done before login")

    def note_refused(self, action: str, resource: str, detail: str = "") -> None:
        raise AssertionError("no permission is checked before login")


CLOSED = ClosedGuard()
