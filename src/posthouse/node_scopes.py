"""The keeper: takes the scopes that the plan gives this broker, and hands over the others.

A scope is *held* if the database says so, and *loaded* if the broker serves it. Only what is held is
loaded, and only what is not loaded any more is released. A statement whose answer was lost is repeated: the
next view of the cluster shows what became of it.

The keeper lives as long as the lease of the broker. If the app cannot start, the next one loads the scopes
that the broker holds.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from posthouse.cluster.scope_plan import ScopePlan, coordinator_moves, plan_scopes
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError
from posthouse.model.scopes import Scope
from posthouse.node_context import ABANDON_SECONDS
from posthouse.protocols.scope_moves import ScopeMoves

log = logging.getLogger(__name__)

SETTLED_SECONDS = 5.0
"""A broker gets scopes of others only after it has been alive for so long: it may be one that ends again."""
HANDOVER_SECONDS = 0.5
"""Between two scopes that a broker hands over, so that few groups and logs move at a time."""
_LOADED_AT_ONCE = 8
_MOST_NAMES = 8


class ScopeLeases(Protocol):
    """Scopes in the database, taken and released with the lease of this broker."""

    async def take(self, scopes: Collection[Scope]) -> frozenset[Scope]:
        """Those of them that this broker holds now. Raises DatabaseAway."""

    async def release(self, scope: Scope) -> None:
        """No-op if this broker does not hold it. Raises DatabaseAway."""

    def abandon(self, why: str) -> None:
        """End the lease of this broker, and with it all that it serves."""


class ScopeServer(Protocol):
    """Serves scopes that are spread."""

    async def take_scope(self, scope: Scope) -> None:
        """Raises PosthouseError if it cannot be loaded now."""

    async def release_scope(self, scope: Scope) -> None:
        """Returns when nothing uses the scope any more and its commits have ended. Raises PosthouseError;
        then it is not served either, and can be released or taken again."""


class HeartbeatView(Protocol):
    @property
    def view(self) -> ClusterView: ...

    async def next_view(self) -> ClusterView:
        """What the next heartbeat finds."""

    def hurry(self, is_moving: bool) -> None:
        """Send heartbeats more often while scopes move: others wait for them."""


class ScopeKeeper:
    """Owned by the event loop."""

    def __init__(
        self, own: ClusterBroker, leases: ScopeLeases, *, clock: Clock, moves: ScopeMoves | None = None
    ) -> None:
        self._own = own
        self._leases = leases
        self._monotonic = clock.monotonic
        self._moves = moves or ScopeMoves()
        self._moves.held.clear()
        self._held: set[Scope] = set()
        self._loaded: set[Scope] = set()
        self._next_handover = clock.monotonic()
        self._failed: set[str] = set()
        """What has failed, and was logged."""
        self.has_share = asyncio.Event()
        """This broker has tried to take what the plan gives it; it serves what it got, and a heartbeat has
        shown that."""

    @property
    def held(self) -> frozenset[Scope]:
        return frozenset(self._held)

    @property
    def loaded(self) -> frozenset[Scope]:
        """By the app that it runs with."""
        return frozenset(self._loaded)

    async def run(self, server: ScopeServer, heartbeats: HeartbeatView) -> None:
        """For one app, which has started. Until it is cancelled; then the app must be stopped: it may be in
        the middle of loading a scope."""
        view = heartbeats.view
        try:
            while True:
                is_moving = await self.step(server, view)
                heartbeats.hurry(is_moving or coordinator_moves(view))
                view = await heartbeats.next_view()
        finally:
            heartbeats.hurry(False)
            self._loaded.clear()

    async def step(self, server: ScopeServer, view: ClusterView) -> bool:
        """Do what the plan for this view asks of this broker, and hand over at most one scope. Returns
        whether a newer view is needed soon: brokers have still to take or to hand over some."""
        plan = plan_scopes(view)
        own = view.by_incarnation.get(self._own.incarnation)
        if own is None or not own.is_ready or own.lease_seconds_left <= 0:
            return True  # the heartbeat is older than the lease and the app, or the lease is in danger
        planned = plan.of(self._own.id)
        with self._logged("take scopes"):
            await self._take(planned, view)
        await self._load(server, planned)
        with self._logged("hand over scopes"):
            await self._hand_over_one(server, plan, view)
        self._moves.held = _by_kind(self._held)
        if planned & self._held <= self._loaded and all(
            _holder(view, each) == self._own.id for each in self._held
        ):
            self.has_share.set()
        return any(_holder(view, scope) != broker for scope, broker in plan.holders.items())

    async def _take(self, planned: frozenset[Scope], view: ClusterView) -> None:
        """Those that no live broker holds. The database refuses them while the lease of a dead one lasts."""
        own = self._own.id
        free = [each for each in planned - self._held if _holder(view, each) in (None, own)]
        if not free:
            return
        taken = await self._leases.take(sorted(free))
        self._held |= taken
        self._moves.taken += _by_kind(taken)
        if taken:
            log.info("broker %s takes %s", self._own.name, _names(taken))

    async def _load(self, server: ScopeServer, planned: frozenset[Scope]) -> None:
        """Some at a time: most of it is waiting for the database, which answers several at once."""
        limit = asyncio.Semaphore(_LOADED_AT_ONCE)
        async with asyncio.TaskGroup() as loads:
            for scope in sorted((self._held & planned) - self._loaded):
                loads.create_task(self._load_one(server, scope, limit))

    async def _load_one(self, server: ScopeServer, scope: Scope, limit: asyncio.Semaphore) -> None:
        async with limit:
            began = self._monotonic()
            with self._logged(f"load {scope}"):
                await server.take_scope(scope)
                self._loaded.add(scope)
                self._moves.load_seconds.observe(self._monotonic() - began)

    async def _hand_over_one(self, server: ScopeServer, plan: ScopePlan, view: ClusterView) -> None:
        own = self._own.id
        others = {scope: broker for scope, broker in plan.holders.items() if broker != own}
        for scope in others.keys() - self._held:
            if _holder(view, scope) == own:  # by a statement whose answer was lost
                await self._leases.release(scope)
        now = self._monotonic()
        if now < self._next_handover:
            return
        brokers = {each.id: each for each in view.brokers}
        # First those that operators wait for.
        for scope in sorted(
            self._held & others.keys(),
            key=lambda each: (each not in view.wanted, each in self._loaded, each),
        ):
            other = brokers[others[scope]]
            if other.seconds_since_start >= SETTLED_SECONDS:
                self._next_handover = now + HANDOVER_SECONDS
                await self._hand_over(server, scope, other)
                return

    async def _hand_over(self, server: ScopeServer, scope: Scope, other: ClusterBroker) -> None:
        log.info("broker %s hands over %s to %s", self._own.name, scope, other.name)
        began = self._monotonic()
        self._loaded.discard(scope)
        try:
            async with asyncio.timeout(ABANDON_SECONDS):
                await server.release_scope(scope)
        except TimeoutError:
            # It is served by no broker meanwhile, and nothing else is handed over.
            self._leases.abandon(f"the broker did not hand over {scope} within {ABANDON_SECONDS:g} s")
            return
        await self._leases.release(scope)
        self._held.discard(scope)
        self._moves.handed_over[scope.kind] += 1
        self._moves.unload_seconds.observe(self._monotonic() - began)

    @contextmanager
    def _logged(self, doing: str) -> Iterator[None]:
        """The next step tries again what has failed. One line in the log, however often that is."""
        try:
            yield
        except (PosthouseError, OSError) as error:
            if doing not in self._failed:
                self._failed.add(doing)
                log.warning("broker %s cannot %s: %s", self._own.name, doing, error)
        else:
            self._failed.discard(doing)


def _holder(view: ClusterView, scope: Scope) -> int | None:
    """None also if the lease of the broker is over."""
    found = view.holder_of(scope)
    return None if found is None or found.lease_seconds_left <= 0 else found.id


def _by_kind(scopes: Iterable[Scope]) -> Counter[str]:
    return Counter(scope.kind for scope in scopes)


def _names(scopes: Iterable[Scope]) -> str:
    names = sorted(map(str, scopes))
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
