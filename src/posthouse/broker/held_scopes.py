"""The scopes of groups that this broker holds, and the work on them that is not done yet.

    free ──load──► loading ──loaded──► held ──release──► releasing ──released──► free

A group is served while its scope is held. What takes longer than one turn of the event loop *uses* the scope:
a scope is not given up before all of that is done. A broker that is alone holds all scopes, always.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from posthouse.model.errors import CoordinatorLoading, NotCoordinator
from posthouse.model.ids import GroupId
from posthouse.model.scopes import GROUPS, Scope, shard_of

Released = Callable[[Scope], None]


class HeldScopes:
    """Owned by the event loop."""

    def __init__(self, *, has_all: bool) -> None:
        self.has_all = has_all
        """The broker is alone. On hot paths this is asked first."""
        self._held: set[int] = set(range(len(GROUPS))) if has_all else set()
        self._loading: set[int] = set()
        self._users: dict[int, int] = {}
        self._awaiting_unused: dict[int, asyncio.Future[None]] = {}
        self._released: list[Released] = []

    def __iter__(self) -> Iterator[Scope]:
        """Those that are held."""
        return (GROUPS[shard] for shard in sorted(self._held))

    def holds(self, scope: Scope) -> bool:
        return scope.group_shard in self._held

    def serves(self, group: GroupId) -> bool:
        return self.has_all or shard_of(group.encode()) in self._held

    @property
    def is_loading(self) -> bool:
        """Whether groups of this broker may be missing at the moment."""
        return bool(self._loading)

    def check(self, group: GroupId) -> None:
        """Raises NotCoordinator or CoordinatorLoading unless the group is served here."""
        if self.has_all:
            return
        shard = shard_of(group.encode())
        if shard in self._held:
            return
        if shard in self._loading:
            raise CoordinatorLoading(f"the group {group!r} is being loaded; try again in a moment")
        raise NotCoordinator(f"the group {group!r} is coordinated by another broker")

    @contextmanager
    def used(self, group: GroupId) -> Iterator[None]:
        """The scope of the group stays with this broker meanwhile. Raises as `check`."""
        self.check(group)
        if self.has_all:
            yield
            return
        shard = shard_of(group.encode())
        self._users[shard] = self._users.get(shard, 0) + 1
        try:
            yield
        finally:
            self._left(shard)

    def _left(self, shard: int) -> None:
        self._users[shard] -= 1
        if not self._users[shard]:
            del self._users[shard]
            waiting = self._awaiting_unused.pop(shard, None)
            if waiting is not None:
                waiting.set_result(None)

    def when_released(self, released: Released) -> None:
        """Call `released` when a scope is about to be given up: it is not served any more, and what waits for
        something in it must end soon."""
        self._released.append(released)

    @contextmanager
    def loaded(self, scope: Scope) -> Iterator[None]:
        """The scope is held if the block succeeds."""
        shard = _shard(scope)
        if shard in self._held or shard in self._loading:
            raise ValueError(f"{scope} is held already")
        self._loading.add(shard)
        try:
            yield
        finally:
            self._loading.discard(shard)
        self._held.add(shard)

    def release(self, scope: Scope) -> None:
        self._held.discard(_shard(scope))
        for released in self._released:
            released(scope)

    async def unused(self, scope: Scope) -> None:
        """Wait until all work on the scope is done. To be called after `release`."""
        shard = _shard(scope)
        if shard in self._users:
            waiting = self._awaiting_unused.setdefault(shard, asyncio.get_running_loop().create_future())
            await asyncio.shield(waiting)


def _shard(scope: Scope) -> int:
    shard = scope.group_shard
    if shard is None:
        raise ValueError(f"{scope} has no groups")
    return shard
