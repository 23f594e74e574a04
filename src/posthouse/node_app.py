"""The app of a node in one role, with all that it exchanges with other brokers."""

import asyncio
import socket
from dataclasses import dataclass
from functools import partial

from posthouse.app import App
from posthouse.cluster.forwarding import ForwardedConnection
from posthouse.cluster.hints import HintPeer, Hints
from posthouse.cluster.member_front_ends import member_front_ends
from posthouse.cluster.peers import Adopt
from posthouse.cluster.preamble import AnyPassage, HintPassage, Refusal, RelayPassage
from posthouse.cluster.relaying import ScopeRelay
from posthouse.model.brokers import ClusterBroker
from posthouse.model.scopes import COORDINATOR
from posthouse.node_context import NodeContext, NodeFailed
from posthouse.node_place import PEER
from posthouse.node_scopes import ScopeKeeper
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.gate import SECONDS_TO_PROVE
from posthouse.protocols.introduction import Origin
from posthouse.protocols.membership import Membership, MemberStanding
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.storage.shared.membership.cluster_control import DatabaseControl
from posthouse.storage.shared.membership.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedConnection:
    """A connection of a client between two apps of the same node, as a member and as the coordinator."""

    listener: str
    """The name of the setting."""
    socket: socket.socket
    origin: Origin


_GRACE_SECONDS = 5.0
"""More than a connection waits for a coordinator: waiting is no offence of the client."""
_TAKEOVER_DRAIN_SECONDS = 0.5
CUT_OFF_SECONDS = 4.0
"""A member that has not heard of the database for so long does not say who leads."""


class CoordinatorStanding:
    """The lease of a broker that has taken the scope coordinator, with the epoch of the scope."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.epoch = lease.scopes.get(COORDINATOR, 0)

    @property
    def is_valid(self) -> bool:
        return self._lease.is_valid

    @property
    def is_cut_off(self) -> bool:
        return self._lease.is_cut_off

    @property
    def seconds_left(self) -> float:
        return self._lease.seconds_left


class NodeApp:
    """Started once, stopped once."""

    def __init__(self, node: NodeContext, lease: Lease, keeper: ScopeKeeper, *, coordinates: bool) -> None:
        """Of the coordinator, or of a member. While it serves, the `keeper` gives it scopes of groups."""
        self._node = node
        self._lease = lease
        self._keeper = keeper
        self._keeping: asyncio.Task[None] | None = None
        traffic = PeerTraffic()
        self._relay = ScopeRelay(node.own.incarnation, node.dialler, traffic)
        storage = node.storages.make(lease)
        waiting_seconds = node.dialler.patience_seconds + _GRACE_SECONDS
        self.app = App(
            node.loaded,
            clock=node.clock,
            storage=storage,
            front_ends=FRONT_ENDS if coordinates else member_front_ends(FRONT_ENDS, node.dialler),
            membership=Membership(
                own=node.own,
                view=lambda: node.registry.view,
                lease=CoordinatorStanding(lease) if coordinates else None,
                member=MemberStanding(self._is_cut_off),
                control=DatabaseControl(node.database),
                moves=node.moves,
            ),
            relay=self._relay,
            peer_traffic=traffic,
            seconds_to_prove=SECONDS_TO_PROVE if coordinates else waiting_seconds,
        )
        self._hints = Hints(
            _peer(node.own),
            node.secret,
            lambda: [_peer(each) for each in node.registry.view.brokers if PEER in each.addresses],
            storage.hinted,
            clock=node.clock,
            traffic=traffic,
        )
        storage.grown(self._hints.tell)

    def _is_cut_off(self) -> bool:
        return not self._lease.is_valid or self._node.registry.seconds_since_heard() > CUT_OFF_SECONDS

    async def start(self) -> None:
        await self.app.start(self._node.place.copies())
        self._hints.start()
        self._keeping = asyncio.create_task(self._keeper.run(self.app.broker, self._node.registry))

    def check(self) -> None:
        """Raises NodeFailed if scopes are not kept any more, by an error of the broker itself."""
        if self._keeping is not None and self._keeping.done():
            error = self._keeping.exception()
            raise NodeFailed(f"the broker failed to keep its scopes: {error!r}") from error

    def adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        """What serves connections of other brokers."""
        if isinstance(passage, HintPassage):
            return partial(self._hints.adopt, passage=passage)
        if not self.app.broker.holds(passage.scope):
            return Refusal.NOT_HOLDER
        listener = self.app.listener(passage.listener)
        if listener is None:
            return Refusal.NO_SUCH_LISTENER
        origin = Origin(client=passage.client)
        if isinstance(passage, RelayPassage):
            origin = Origin(client=passage.client, relayed_by=passage.broker, user=passage.user)
        return partial(listener.adopt, origin=origin)

    def sweep(self) -> None:
        """To be called about once a second."""
        self._relay.sweep()

    def go_on_with(self, moved: list[MovedConnection]) -> None:
        """Serve the connections, which are taken from the list."""
        while moved:
            each = moved.pop()
            listener = self.app.listener(each.listener)
            if listener is None:
                each.socket.close()
            else:
                listener.adopt(each.socket, each.origin)

    async def stop(self, *, at_once: bool = False, moved: list[MovedConnection] | None = None) -> None:
        """If this broker changes its role, it gives `moved`: the connections that its next app can go on with
        are added to it. Connections that wait for a coordinator stay, and reach this one. For a client that
        knows no other living broker, a closed connection would be the end: it asks only the addresses that it
        began with."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._hints.stop()
        if moved is None:
            await self.app.stop(at_once=at_once)
            return
        for connection in self.app.connections:
            if isinstance(connection, ForwardedConnection) and connection.is_waiting:
                connection.detach()

        def take(listener: str, taken: socket.socket, origin: Origin) -> None:
            moved.append(MovedConnection(listener=listener, socket=taken, origin=origin))

        await self.app.stop(drain_seconds=_TAKEOVER_DRAIN_SECONDS, take=take)


def _peer(broker: ClusterBroker) -> HintPeer:
    return HintPeer(id=broker.id, incarnation=broker.incarnation, address=broker.addresses[PEER])
