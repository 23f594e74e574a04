"""What one connection may do: asked before everything that is done for it."""

from collections.abc import Sequence
from typing import Protocol

from posthouse.broker.access.acls import Acls
from posthouse.broker.access.audit import Audit
from posthouse.broker.access.operations import CHANGING, CLUSTER, Kind, Operation
from posthouse.broker.access.principal import ANONYMOUS, Principal

_MOST_REMEMBERED = 10_000
_LONGEST_REMEMBERED = 300
"""Names that clients make up may be as long as they like."""


class Guard(Protocol):
    @property
    def principal(self) -> Principal: ...

    @property
    def last_change(self) -> int:
        """Number of the last change that was written down: its client is told when it is on disk."""

    def allows(self, operation: Operation, kind: Kind, name: str) -> bool:
        """Written down where it is refused, or changes something."""

    def sees(self, kind: Kind, name: str) -> bool:
        """Whether it may be shown; for lists, where nobody asked for this one by its name."""

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        """The same answer as `allows`, without a word about it."""

    def allows_some(self, operation: Operation, kind: Kind) -> bool:
        """Whether there is any resource of the kind that this may be done to."""

    def allows_here_or_everywhere(self, operation: Operation, kind: Kind, name: str) -> bool:
        """As `allows`; the same operation on the cluster is enough, too."""

    def reaches(self, kind: Kind, prefixes: Sequence[str]) -> bool:
        """Whether anything may be done where names begin like one of these."""

    def note(self, action: str, resource: str, detail: str = "") -> None:
        """Write down what was done. Nothing secret may be in it."""

    def note_refused(self, action: str, resource: str, detail: str = "") -> None:
        """Write down what was not done, for a reason that is no permission."""


class OpenGuard:
    """Nobody has to log in, so everybody may do everything."""

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


class Answers:
    """What a user at an address was told, until a permission changes. All connections of that user share it:
    names are made up at will, and there may be thousands of connections."""

    __slots__ = ("__weakref__", "known", "version")

    def __init__(self) -> None:
        self.version = -1
        self.known: dict[tuple[Operation, Kind, str], bool] = {}


class AclGuard:
    """Of somebody who has logged in."""

    def __init__(
        self,
        principal: Principal,
        acls: Acls,
        audit: Audit,
        peer: str,
        protocol: str,
        *,
        is_super: bool,
        answers: Answers | None = None,
    ) -> None:
        """`answers` of the same principal and host."""
        self.principal = principal
        self.last_change = 0
        self._acls = acls
        self._audit = audit
        self._peer = peer
        self._host = host_of(peer)
        self._protocol = protocol
        self._is_super = is_super
        self._answers = answers or Answers()

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
    """As permissions name it."""
    return peer.rpartition(":")[0].strip("[]")


class ClosedGuard:
    """Of somebody who has yet to log in."""

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
        raise AssertionError("nothing is done for somebody who has yet to log in")

    def note_refused(self, action: str, resource: str, detail: str = "") -> None:
        raise AssertionError("nothing is asked by somebody who has yet to log in")


CLOSED = ClosedGuard()
