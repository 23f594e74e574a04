"""The app of a node under one lease, with all that it exchanges with other brokers."""

import asyncio
from functools import partial
from uuid import UUID

from posthouse.app import App
from posthouse.broker.cluster_usage import ClusterUsage
from posthouse.cluster.cluster_front_ends import cluster_front_ends
from posthouse.cluster.hints import HintPeer, Hints
from posthouse.cluster.peers import Adopt
from posthouse.cluster.preamble import AnyPassage, HintPassage, Refusal, RelayPassage, TransferPassage
from posthouse.cluster.relaying import ScopeRelay
from posthouse.cluster.transferring import ScopeTransfer
from posthouse.model.brokers import ClusterBroker
from posthouse.node_campaign import Campaign
from posthouse.node_context import NodeContext, NodeFailed
from posthouse.node_coordinator import Coordinating, CoordinatorScope
from posthouse.node_place import PEER
from posthouse.node_scopes import ScopeKeeper
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.gate import SECONDS_TO_PROVE
from posthouse.protocols.introduction import Origin
from posthouse.protocols.membership import Membership, MemberStanding
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.storage.shared.membership.cluster_control import DatabaseControl
from posthouse.storage.shared.membership.scopes import Scopes

_GRACE_SECONDS = 5.0
"""More than a connection waits for a coordinator: waiting is no offence of the client."""
CUT_OFF_SECONDS = 4.0
"""A member that has not heard of the database for so long does not say who leads."""


class NodeApp:
    """Started once, stopped once."""

    def __init__(self, node: NodeContext, scopes: Scopes, keeper: ScopeKeeper, campaign: Campaign) -> None:
        """While it serves, the `keeper` gives it scopes of groups and housekeeping."""
        self._node = node
        self._lease = scopes.lease
        self._keeper = keeper
        self._keeping: list[asyncio.Task[None]] = []
        traffic = PeerTraffic()
        self._relay = ScopeRelay(node.own.incarnation, node.dialler, traffic)
        storage = node.storages.make(scopes.lease)
        usage = ClusterUsage(node.secret, node.clock, self._others)
        self.app = App(
            node.loaded,
            clock=node.clock,
            storage=storage,
            front_ends=cluster_front_ends(FRONT_ENDS, node.dialler),
            membership=Membership(
                own=node.own,
                view=lambda: node.registry.view,
                coordinating=lambda: self.coordinating,
                member=MemberStanding(self._is_cut_off),
                control=DatabaseControl(node.database),
                moves=node.moves,
                usage=usage,
            ),
            relay=self._relay,
            transfer=ScopeTransfer(node.own.incarnation, node.dialler),
            peer_traffic=traffic,
            seconds_to_prove=max(SECONDS_TO_PROVE, node.dialler.patience_seconds + _GRACE_SECONDS),
        )
        self._broker = self.app.broker
        self._coordinator = CoordinatorScope(node, scopes, campaign, self)
        self._hints = Hints(
            _peer(node.own),
            node.secret,
            lambda: [_peer(each) for each in node.registry.view.brokers if PEER in each.addresses],
            storage.hinted,
            report=lambda: usage.report(self.app.uses(usage.least_told)),
            told=usage.told,
            clock=node.clock,
            traffic=traffic,
        )
        storage.grown(self._hints.tell)

    @property
    def coordinating(self) -> Coordinating | None:
        """While this broker is the coordinator."""
        return self._coordinator.held if self._broker.coordinates else None

    def _is_cut_off(self) -> bool:
        return not self._lease.is_valid or self._node.registry.seconds_since_heard() > CUT_OFF_SECONDS

    def _others(self) -> list[UUID]:
        """The incarnations of the other live brokers."""
        own = self._node.own.id
        return [each.incarnation for each in self._node.registry.view.brokers if each.id != own]

    async def start(self) -> None:
        """As the coordinator, if this broker has taken that scope. Raises what the app or its load raises;
        then nothing is left of it."""
        await self.app.open()
        try:
            await self._coordinator.start()
        except BaseException:
            await self.app.close()
            raise
        await self.app.serve(self._node.place.copies())
        self._hints.start()

    def keep_scopes(self) -> None:
        """Once the registry says that this broker is ready."""
        self._keeping = [
            asyncio.create_task(self._keeper.run(self._broker, self._node.registry), name="spread scopes"),
            asyncio.create_task(self._coordinator.run(), name="scope coordinator"),
        ]

    def check(self) -> None:
        """Raises NodeFailed if scopes are not kept any more, by an error of the broker itself."""
        for each in self._keeping:
            if each.done():
                error = each.exception()
                raise NodeFailed(f"the broker failed to keep its scopes: {error!r}") from error

    async def coordinate(self) -> None:
        await self._broker.coordinate()

    async def step_down(self) -> None:
        await self.app.step_down()

    def adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        """What serves connections of other brokers."""
        if isinstance(passage, HintPassage):
            return partial(self._hints.adopt, passage=passage)
        if not self._broker.holds(passage.scope):
            return Refusal.NOT_HOLDER
        listener = self.app.listener(passage.listener)
        if listener is None:
            return Refusal.NO_SUCH_LISTENER
        origin = Origin(client=passage.client)
        if isinstance(passage, RelayPassage):
            origin = Origin(
                client=passage.client,
                relayed_by=passage.broker,
                relayed_for=passage.scope if passage.takes_refusals else None,
                user=passage.user,
            )
        elif isinstance(passage, TransferPassage):
            origin = Origin(
                client=passage.client, relayed_by=passage.broker, is_transferred=True, user=passage.user
            )
        return partial(listener.adopt, origin=origin)

    def sweep(self) -> None:
        """To be called about once a second."""
        self._relay.sweep()

    async def stop(self, *, at_once: bool = False) -> None:
        for each in self._keeping:
            each.cancel()
        if self._keeping:
            await asyncio.wait(self._keeping)
        await self._hints.stop()
        await self.app.stop(at_once=at_once)


def _peer(broker: ClusterBroker) -> HintPeer:
    return HintPeer(id=broker.id, incarnation=broker.incarnation, address=broker.addresses[PEER])
