"""Keepers with views of any age, statements that fail, and brokers that come and go.

No scope is ever served by two brokers, and once it is quiet all of them are served as planned.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from posthouse.cluster.scope_plan import plan_scopes
from posthouse.model.brokers import ClusterView
from posthouse.model.scopes import GROUPS, HOUSEKEEPING, Scope
from tests.cluster.scope_cluster import Fault, ScopeCluster

_MOST_BROKERS = 4
number = st.integers(0, 1000)
_LOOP = asyncio.new_event_loop()
scopes = st.sampled_from([*GROUPS[:4], *HOUSEKEEPING[:2]])


class Keepers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = ScopeCluster(1)
        self.joined = 1
        self.views: dict[int, ClusterView] = {}
        """The last heartbeat of each broker."""

    def _one(self, choice: int) -> int:
        live = sorted(self.cluster.nodes)
        return live[choice % len(live)]

    @rule(choice=number)
    def heartbeat(self, choice: int) -> None:
        self.views[self._one(choice)] = self.cluster.view()

    @rule(
        choice=number, fault=st.sampled_from([None, None, "before", "after"]), seconds=st.sampled_from([0, 1])
    )
    def step(self, choice: int, fault: Fault | None, seconds: int) -> None:
        node = self.cluster.nodes[self._one(choice)]
        self.cluster.clock.advance(seconds)
        if node.id in self.views:
            node.leases.fault = fault
            finished(node.step(self.views[node.id]))
            node.leases.fault = None

    @rule(seconds=st.integers(1, 40))
    def quiet_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            finished(self.cluster.round())

    @rule(broken=st.sets(scopes, max_size=2), choice=number)
    def break_loading(self, broken: set[Scope], choice: int) -> None:
        self.cluster.nodes[self._one(choice)].server.broken = broken

    @precondition(lambda self: len(self.cluster.nodes) < _MOST_BROKERS)
    @rule()
    def join(self) -> None:
        self.joined += 1
        self.cluster.join(self.joined)

    @precondition(lambda self: len(self.cluster.nodes) > 1)
    @rule(choice=number)
    def kill(self, choice: int) -> None:
        self.cluster.kill(self._one(choice), is_lease_over=False)

    @rule()
    def leases_of_the_dead_end(self) -> None:
        self.cluster.table.leases &= set(self.cluster.nodes)

    @rule(choice=number, is_draining=st.booleans())
    def drain(self, choice: int, is_draining: bool) -> None:
        (self.cluster.draining.add if is_draining else self.cluster.draining.discard)(self._one(choice))

    @rule(scope=scopes, choice=number)
    def move(self, scope: Scope, choice: int) -> None:
        self.cluster.wanted[scope] = self._one(choice)

    @rule(scope=scopes)
    def move_anywhere(self, scope: Scope) -> None:
        self.cluster.wanted.pop(scope, None)

    @invariant()
    def no_scope_is_served_twice(self) -> None:
        self.cluster.check()

    def teardown(self) -> None:
        self.leases_of_the_dead_end()
        for node in self.cluster.nodes.values():
            node.server.broken = set()
        finished(self.cluster.settle())
        plan = plan_scopes(self.cluster.view())
        assert {each: node.server.served for each, node in self.cluster.nodes.items()} == {
            each: plan.of(each) for each in self.cluster.nodes
        }


def finished(coroutine: Coroutine[Any, Any, object]) -> None:
    """Runs what waits for nothing but its own tasks."""
    _LOOP.run_until_complete(coroutine)


TestKeepers = Keepers.TestCase
TestKeepers.settings = settings(stateful_step_count=40, deadline=None)
