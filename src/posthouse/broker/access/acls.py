"""ACLs: allow and deny rules for principals, operations and resources. The same rules as Kafka's.

Storage has one entry per rule in `Space.ACLS`: the key is its JSON in UTF-8, the value is empty.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from posthouse.broker.access.operations import CLUSTER, IMPLIED_BY, POSSIBLE, Kind, Operation
from posthouse.broker.access.principal import EVERYBODY, Principal
from posthouse.broker.changes import SerializedChanges
from posthouse.broker.stored_entries import readable_entries
from posthouse.model.errors import InvalidAcl
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

ANY_NAME = "*"
ANY_HOST = "*"
_MAX_ACLS = 100_000
_EVERYBODY = str(EVERYBODY)
_ENOUGH = {each: frozenset({each, Operation.ALL}) | IMPLIED_BY.get(each, frozenset()) for each in Operation}
"""For each operation the operations that imply it: permission for any of them is enough."""


class Pattern(StrEnum):
    LITERAL = "literal"
    """The name itself, or * for all."""
    PREFIXED = "prefixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    kind: Kind
    name: str
    pattern: Pattern = Pattern.LITERAL
    principal: str
    host: str = ANY_HOST
    operation: Operation
    allow: bool = True

    def check(self) -> None:
        """Raises InvalidAcl."""
        if not self.name or not self.host:
            raise InvalidAcl("an ACL needs the name of a resource, and a host or *")
        try:
            Principal.parse(self.principal)
        except ValueError as error:
            raise InvalidAcl(str(error)) from None
        if self.kind is Kind.CLUSTER and (self.name != CLUSTER or self.pattern is not Pattern.LITERAL):
            raise InvalidAcl(f"the cluster is called {CLUSTER!r}; use this name")
        if self.operation is not Operation.ALL and self.operation not in POSSIBLE[self.kind]:
            raise InvalidAcl(f"there is no operation {self.operation} on a {self.kind}")

    def is_for(self, principal: Principal, host: str) -> bool:
        return self.principal in (str(principal), str(EVERYBODY)) and self.host in (host, ANY_HOST)

    @property
    def is_for_all_names(self) -> bool:
        return self.pattern is Pattern.LITERAL and self.name == ANY_NAME

    @property
    def resource(self) -> str:
        """The resource of the rule, in words."""
        beginning = " beginning with" if self.pattern is Pattern.PREFIXED else ""
        return f"{self.kind}{beginning}:{self.name}"

    @property
    def rule(self) -> str:
        """The effect of the rule, in words."""
        return f"{'allow' if self.allow else 'deny'} {self.principal} {self.operation} from {self.host}"

    def key(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_key(cls, key: bytes) -> "Acl":
        given = json.loads(key)
        texts = (given["name"], given["principal"], given["host"])
        if not isinstance(given["allow"], bool) or not all(isinstance(each, str) for each in texts):
            raise ValueError("an ACL has texts, and allows or denies")
        return cls(
            kind=Kind(given["kind"]),
            name=given["name"],
            pattern=Pattern(given["pattern"]),
            principal=given["principal"],
            host=given["host"],
            operation=Operation(given["operation"]),
            allow=given["allow"],
        )


class Acls:
    """Owned by the event loop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changes = SerializedChanges()
        self._all: dict[Acl, None] = {}
        self._by_name: dict[tuple[Kind, Pattern, str], list[Acl]] = {}
        self._prefix_lengths: dict[Kind, list[int]] = {}
        self.version = 0
        """Increases with every change; cached decisions of earlier versions are invalid."""

    def load(self) -> None:
        self._all = {Acl.from_key(key): None for key in self._storage.take_state(Space.ACLS)}
        self._index()

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed ACLs; `state` is the content of `Space.ACLS`."""
        self._all = dict.fromkeys(readable_entries(Space.ACLS, state, lambda key, _: Acl.from_key(key)))
        self._index()

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    async def add(self, acls: Sequence[Acl]) -> None:
        """Add rules, all or none. Existing rules are no error."""
        for acl in acls:
            acl.check()
        await self._changes.make(self._add(acls))

    async def _add(self, acls: Sequence[Acl]) -> None:
        new = [acl for acl in dict.fromkeys(acls) if acl not in self._all]
        if len(self._all) + len(new) > _MAX_ACLS:
            raise InvalidAcl(f"there are {len(self._all)} ACLs; the limit is {_MAX_ACLS}")
        if new:
            await self._storage.commit([Put(Space.ACLS, acl.key(), b"") for acl in new])
            self._all |= dict.fromkeys(new)
            self._index()

    async def remove(self, is_meant: Callable[[Acl], bool]) -> list[Acl]:
        """Remove the matching rules; returns them."""
        return await self._changes.make(self._remove(is_meant))

    async def _remove(self, is_meant: Callable[[Acl], bool]) -> list[Acl]:
        removed = [acl for acl in self._all if is_meant(acl)]
        if removed:
            await self._storage.commit([Put(Space.ACLS, acl.key(), None) for acl in removed])
            for acl in removed:
                self._all.pop(acl, None)
            self._index()
        return removed

    def _index(self) -> None:
        self._by_name = {}
        lengths: dict[Kind, set[int]] = {}
        for acl in self._all:
            self._by_name.setdefault((acl.kind, acl.pattern, acl.name), []).append(acl)
            if acl.pattern is Pattern.PREFIXED:
                lengths.setdefault(acl.kind, set()).add(len(acl.name))
        self._prefix_lengths = {kind: sorted(each) for kind, each in lengths.items()}
        self.version += 1

    def about(self, kind: Kind, name: str) -> Iterator[Acl]:
        """The rules whose pattern matches the name."""
        yield from self._by_name.get((kind, Pattern.LITERAL, name), ())
        if name != ANY_NAME:
            yield from self._by_name.get((kind, Pattern.LITERAL, ANY_NAME), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from self._by_name.get((kind, Pattern.PREFIXED, name[:length]), ())

    def allow(self, principal: Principal, host: str, operation: Operation, kind: Kind, name: str) -> bool:
        """One deny rule outweighs all allow rules. Without any rule the answer is no."""
        enough = _ENOUGH[operation]
        mine = (str(principal), _EVERYBODY)
        is_allowed = False
        for acl in self.about(kind, name):
            # Inlines `is_for`, which is slower: lists of topics call this for each topic.
            if acl.principal not in mine or acl.host not in (host, ANY_HOST):
                continue
            if acl.allow:
                is_allowed = is_allowed or acl.operation in enough
            elif acl.operation in (operation, Operation.ALL):
                return False
        return is_allowed

    def allow_some(self, principal: Principal, host: str, operation: Operation, kind: Kind) -> bool:
        """Whether the operation is allowed on any resource of the kind, existing or not."""
        mine = [acl for acl in self._all if acl.kind is kind and acl.is_for(principal, host)]
        denied = [acl for acl in mine if not acl.allow and acl.operation in (operation, Operation.ALL)]
        return any(
            acl.allow and acl.operation in _ENOUGH[operation] and not _covers(denied, acl) for acl in mine
        )

    def reach(self, principal: Principal, host: str, kind: Kind, prefixes: Iterable[str]) -> bool:
        """Whether any operation is allowed on names with these prefixes, existing or not."""
        mine = [acl for acl in self._all if acl.allow and acl.kind is kind and acl.is_for(principal, host)]
        return any(
            acl.name == ANY_NAME
            or acl.name.startswith(prefix)
            or (acl.pattern is Pattern.PREFIXED and prefix.startswith(acl.name))
            for prefix in prefixes
            for acl in mine
        )


def _covers(denied: Iterable[Acl], acl: Acl) -> bool:
    """Whether a deny rule covers the allow rule completely."""
    for each in denied:
        if each.pattern is Pattern.LITERAL:
            if each.name == ANY_NAME or (acl.pattern is Pattern.LITERAL and each.name == acl.name):
                return True
        elif acl.is_for_all_names:
            continue
        elif acl.name.startswith(each.name):
            return True
    return False
