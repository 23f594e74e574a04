"""The coordinator and a member on one log in memory. Both serve groups, and relay requests to each other.

Transactional ids are the coordinator's, unless a test moves their scopes.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from posthouse.app import App
from posthouse.model.address import Address
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.clock import SystemClock
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import COORDINATOR as COORDINATING
from posthouse.model.scopes import TRANSACTIONS, Scope
from posthouse.protocols.membership import Membership, MemberStanding
from posthouse.protocols.relay import RelayedConnection
from tests.broker.members import CoordinatorStorage, MemberStorage
from tests.protocols.kafka.members import COORDINATOR, OWN, WiredRelay
from tests.served import on_any_port


@dataclass
class Lease:
    is_valid: bool = True
    is_cut_off: bool = False
    epoch: int = 8
    seconds_left: float = 3.0


class TwoBrokers:
    """`view` is what both know of the cluster; it follows the scopes that a test moves."""

    def __init__(self, **settings: Any) -> None:
        clock = SystemClock()
        self.view = ClusterView(brokers=(OWN, COORDINATOR), holder_incarnation=COORDINATOR.incarnation)
        self.storage = CoordinatorStorage(clock)
        self.member_storage = MemberStorage(self.storage, clock)
        self.is_cut_off = False
        """The member."""
        self.coordinator = App(
            on_any_port(memory=True, **settings),
            storage=self.storage,
            membership=Membership(own=COORDINATOR, view=lambda: self.view, coordinating=Lease),
            relay=_ToHolder(self, COORDINATOR),
        )
        self.member = App(
            on_any_port(memory=True, **settings),
            storage=self.member_storage,
            membership=Membership(
                own=OWN, view=lambda: self.view, member=MemberStanding(lambda: self.is_cut_off)
            ),
            relay=_ToHolder(self, OWN),
        )
        self.relayed: list[Scope] = []
        """The scopes of the connections between the brokers, in their order."""

    def app(self, broker: ClusterBroker) -> App:
        return self.coordinator if broker is COORDINATOR else self.member

    async def hold(self, scope: Scope, app: App) -> None:
        """Take or move the scope; both hear of it."""
        table = self.storage.scopes
        if scope in table.holders:
            await table.move(scope, app.broker)
        else:
            await table.take(app.broker, scope)
        broker = COORDINATOR if app is self.coordinator else OWN
        self.view = replace(self.view, holders={**self.view.holders, scope: broker.incarnation})


class _ToHolder:
    """Relays to the broker that holds the scope by the view of the cluster."""

    def __init__(self, brokers: TwoBrokers, own: ClusterBroker) -> None:
        self._brokers = brokers
        self._own = own

    def open(
        self,
        listener: str,
        client: Address,
        user: ProvenUser | None,
        grown: Callable[[], None],
        scope: Scope,
    ) -> RelayedConnection:
        return self._wired(scope).open(listener, client, user, grown, scope)

    async def connect(
        self, listener: str, client: Address, user: ProvenUser | None, scope: Scope
    ) -> socket.socket:
        return await self._wired(scope).connect(listener, client, user, scope)

    def _wired(self, scope: Scope) -> WiredRelay:
        brokers = self._brokers
        holder = COORDINATOR if scope == COORDINATING else brokers.view.holder_of(scope)
        assert holder is not None and holder is not self._own, f"{scope} is held by {holder}"
        brokers.relayed.append(scope)
        return WiredRelay(self._own.incarnation, brokers.app(holder))


@asynccontextmanager
async def two_brokers(**settings: Any) -> AsyncIterator[TwoBrokers]:
    made = TwoBrokers(**settings)
    await made.coordinator.start()
    try:
        await made.member.start()
        try:
            for scope in TRANSACTIONS:
                await made.hold(scope, made.coordinator)
            yield made
        finally:
            await made.member.stop(at_once=True)
    finally:
        await made.coordinator.stop(at_once=True)
