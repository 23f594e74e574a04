"""What a handler works with: the broker, the parts around it, and the guard of the client who asks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.access.principal import ANONYMOUS
from posthouse.broker.access.quotas import Quota
from posthouse.broker.broker import Broker
from posthouse.model.networks import owner_of_peer
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.protocols.admin.decoding.schemas import Schemas
from posthouse.protocols.admin.events import EventHub
from posthouse.protocols.admin.flow_rates import FlowRates
from posthouse.protocols.admin.half_checks import HalfChecks
from posthouse.protocols.admin.open_streams import OpenStreams
from posthouse.protocols.admin.other_brokers import Caller, OtherBrokers, Parts
from posthouse.protocols.admin.problems import refused
from posthouse.protocols.admin.rates import Rates
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.admin.saga_states import SagaStates
from posthouse.protocols.admin.traffic_totals import TrafficTotals
from posthouse.protocols.budget import Budget
from posthouse.protocols.front_end import Backend
from posthouse.protocols.gate import Gate
from posthouse.protocols.served import ServedListeners
from posthouse.settings import Settings

_NO_CLIENT_ID = ""
"""HTTP clients have none: quotas of users and defaults apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the front end keeps from one request to the next."""

    flow: FlowRates
    rates: Rates
    schemas: Schemas
    traffic: TrafficTotals
    streams: OpenStreams
    half_checks: HalfChecks
    sagas: SagaStates


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    backend: Backend
    guard: Guard
    peer: str
    caller: Caller
    kept: Kept
    events: EventHub

    @property
    def broker(self) -> Broker:
        return self.backend.broker

    @property
    def owner(self) -> str:
        """The user, or the address without logins: whose streams are counted together."""
        principal = self.guard.principal
        return owner_of_peer(self.peer) if principal == ANONYMOUS else str(principal)

    @property
    def rates(self) -> Rates:
        return self.kept.rates

    @property
    def flow(self) -> FlowRates:
        return self.kept.flow

    @property
    def settings(self) -> Settings:
        return self.backend.settings

    @property
    def budget(self) -> Budget:
        return self.backend.budget

    @property
    def gate(self) -> Gate:
        return self.backend.gate

    @property
    def listeners(self) -> ServedListeners:
        return self.backend.listeners

    def is_elsewhere(self, scope: Scope) -> bool:
        """Whether another broker holds the scope, and has to be asked."""
        if self.backend.membership is None or self.caller.is_relayed:
            return False
        return not self.broker.holds(scope)

    @property
    def other_brokers(self) -> OtherBrokers | None:
        """Those that have to be asked for a whole list, besides this one."""
        membership = self.backend.membership
        if membership is None or self.caller.is_relayed:
            return None
        return OtherBrokers(self.backend.relay, membership, self.broker.holds)

    async def ask(self, scope: Scope, request: HttpRequest) -> Response:
        """The answer of the broker that holds the scope; not this one. Raises Problem and Unavailable."""
        others = self.other_brokers
        assert others is not None
        return await others.ask(scope, request, self.caller)

    def parts(self, scopes: Sequence[Scope], noun: str) -> Parts:
        """What is to be asked for a whole that belongs to these scopes, besides this broker. `noun` is what
        they are about, in the plural. Raises Problem if one of them has no holder."""
        others = self.other_brokers
        return Parts() if others is None else others.parts(scopes, noun, self.caller)

    async def in_namespace(
        self, name: str, request: HttpRequest, answer: Callable[[], Awaitable[Response]]
    ) -> Response:
        """The answer to a call about one namespace: this broker's, which keeps the namespace meanwhile, or
        that of the broker which serves it. Raises Problem and Unavailable."""
        if self.is_elsewhere(scope := scope_of_namespace(name)):
            return await self.ask(scope, request)
        with self.broker.namespaces.held.used(name):
            return await answer()

    def require(self, operation: Operation, kind: Kind, name: str) -> None:
        """Raises Problem 403. What is refused, or changes something, goes to the audit log."""
        if not self.guard.allows(operation, kind, name):
            raise refused(operation, kind, name)

    def require_cluster(self, operation: Operation) -> None:
        """For what belongs to no single topic or group: connections, users, settings."""
        if not self.guard.allows(operation, Kind.CLUSTER, CLUSTER):
            raise refused(operation, Kind.CLUSTER, CLUSTER)

    def debit(self, quota: Quota, size: int) -> None:
        """Take bytes from a quota of the user. The next call that is charged waits for them."""
        self.broker.access.quotas.take(quota, self.guard.principal.name, _NO_CLIENT_ID, size)

    async def charge(self, quota: Quota, size: int) -> None:
        """Take bytes from a quota of the user, and wait for the throttle time, at most 30 seconds.

        The connection is not read meanwhile.
        """
        quotas = self.broker.access.quotas
        delay = quotas.take(quota, self.guard.principal.name, _NO_CLIENT_ID, size)
        if delay > 0:
            began = monotonic()
            try:
                await asyncio.sleep(delay)
            finally:
                quotas.waited(monotonic() - began)
