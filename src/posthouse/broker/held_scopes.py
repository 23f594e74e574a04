"""The scopes of one kind that this broker holds, and the work on them that is not done yet.

    free ──load──► loading ──loaded──► held ──release──► releasing ──released──► free

A group, or a transactional id, is served while its scope is held. What takes longer than one turn of the
event loop *uses* the scope: a scope is not given up before all of that is done. A broker that is alone holds
all scopes, always.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from posthouse.model.errors import CoordinatorLoading, NotCoordinator
from posthouse.model.scopes import (
    GROUPS,
    NAMESPACES,
    TRANSACTIONS,
    Scope,
    scope_of_group,
    scope_of_namespace,
    scope_of_transactional_id,
)

Released = Callable[[Scope], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeKind:
    scopes: tuple[Scope, ...]
    noun: str
    """What the scopes are about, for people."""
    scope_of: Callable[[str], Scope]
    """By its name."""


OF_GROUPS = ScopeKind(scopes=GROUPS, noun="group", scope_of=scope_of_group)
OF_TRANSACTIONS = ScopeKind(scopes=TRANSACTIONS, noun="transactional id", scope_of=scope_of_transactional_id)

OF_NAMESPACES = ScopeKind(scopes=NAMESPACES, noun="namespace", scope_of=scope_of_namespace)


class HeldScopes:
    """Owned by the event loop."""

    def __init__(self, kind: ScopeKind, *, has_all: bool) -> None:
        self._kind = kind
        self._scope_of = kind.scope_of
        self.has_all = has_all
        """The broker is alone. On hot paths this is asked first."""
        self._held: set[Scope] = set(kind.scopes) if has_all else set()
        self._loading: set[Scope] = set()
        self._users: dict[Scope, int] = {}
        self._awaiting_unused: dict[Scope, asyncio.Future[None]] = {}
        self._released: list[Released] = []

    def __iter__(self) -> Iterator[Scope]:
        """Those that are held."""
        return iter(sorted(self._held))

    def holds(self, scope: Scope) -> bool:
        return scope in self._held

    def serves(self, name: str) -> bool:
        return self.has_all or self._scope_of(name) in self._held

    @property
    def is_loading(self) -> bool:
        """Whether something that belongs to this broker may be missing at the moment."""
        return bool(self._loading)

    def check(self, name: str) -> None:
        """Raises NotCoordinator or CoordinatorLoading unless what has this name is served here."""
        if self.has_all:
            return
        scope = self._scope_of(name)
        if scope in self._held:
            return
        if scope in self._loading:
            raise CoordinatorLoading(f"the {self._kind.noun} {name!r} is being loaded; try again in a moment")
        raise NotCoordinator(f"the {self._kind.noun} {name!r} is coordinated by another broker")

    @contextmanager
    def used(self, name: str) -> Iterator[None]:
        """The scope of what has this name stays with this broker meanwhile. Raises as `check`."""
        self.check(name)
        if self.has_all:
            yield
            return
        scope = self._scope_of(name)
        self._users[scope] = self._users.get(scope, 0) + 1
        try:
            yield
        finally:
            self._left(scope)

    def _left(self, scope: Scope) -> None:
        self._users[scope] -= 1
        if not self._users[scope]:
            del self._users[scope]
            waiting = self._awaiting_unused.pop(scope, None)
            if waiting is not None:
                waiting.set_result(None)

    def when_released(self, released: Released) -> None:
        """Call `released` when a scope is about to be given up: it is not served any more, and what waits for
        something in it must end soon."""
        self._released.append(released)

    @contextmanager
    def loaded(self, scope: Scope) -> Iterator[None]:
        """The scope is held if the block succeeds."""
        self._check_kind(scope)
        if scope in self._held or scope in self._loading:
            raise ValueError(f"{scope} is held already")
        self._loading.add(scope)
        try:
            yield
        finally:
            self._loading.discard(scope)
        self._held.add(scope)

    def release(self, scope: Scope) -> None:
        self._check_kind(scope)
        self._held.discard(scope)
        for released in self._released:
            released(scope)

    async def unused(self, scope: Scope) -> None:
        """Wait until all work on the scope is done. To be called after `release`."""
        self._check_kind(scope)
        if scope in self._users:
            waiting = self._awaiting_unused.setdefault(scope, asyncio.get_running_loop().create_future())
            await asyncio.shield(waiting)

    def _check_kind(self, scope: Scope) -> None:
        if scope not in self._kind.scopes:
            raise ValueError(f"{scope} is no scope of a {self._kind.noun}")
