"""The nodes that Kafka clients are told of: one, or all live brokers that share the storage."""

from asyncio import BaseTransport
from collections.abc import Callable, Sequence

from posthouse.model.brokers import ClusterBroker
from posthouse.model.ids import GroupId
from posthouse.model.scopes import Scope, scope_of_group, scope_of_transactional_id
from posthouse.model.topics import Topic
from posthouse.protocols.leaders import Placement, Replicas
from posthouse.protocols.membership import Membership
from posthouse.settings import Address

NODE_ID = 1
"""Of a broker that is alone."""
NO_NODE_ID = -1
"""Kafka's number for a node that is not known."""
_UNKNOWN = Address("127.0.0.1", 0)


class Node:
    """The node that serves. Alone it is leader of every partition, controller and coordinator."""

    __slots__ = ("host", "id", "port", "rack")

    def __init__(self, node_id: int, address: Address, rack: str | None = None) -> None:
        self.id = node_id
        self.host = address.host
        self.port = address.port
        self.rack = rack

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    def all(self) -> Sequence["Node"]:
        """The nodes that the client may connect to."""
        return [self]

    def coordinator(self) -> "Node | None":
        """The controller; None while there is none."""
        return self

    def group_coordinator(self, group: GroupId) -> "Node | None":
        """None while there is none."""
        return self

    def transaction_coordinator(self, transactional_id: str) -> "Node | None":
        """None while there is none."""
        return self

    def replicas(self, topic: Topic) -> Sequence[Replicas]:
        """The ids of the nodes that each partition is read from, its leader first; none while there is no
        leader."""
        return ((self.id,),) * topic.partitions

    def nearer(self, topic: Topic, partition: int, rack: str) -> int | None:
        """The id of the node that a client in this rack should read the partition from; None: from here."""
        return None


def node_reached(transport: BaseTransport, advertised: Address | None) -> Node:
    """A broker that is alone. Unless another address is advertised, it is the one on which the client has
    reached it, and which is known to work."""
    name = transport.get_extra_info("sockname")
    reached = Address(name[0], name[1]) if isinstance(name, tuple) else _UNKNOWN
    return Node(NODE_ID, advertised or reached)


class MemberNode(Node):
    """The node that serves, in a cluster."""

    __slots__ = ("_holds", "_listener", "_membership", "_placement", "_seen")

    def __init__(self, membership: Membership, listener: str, holds: Callable[[Scope], bool]) -> None:
        """Clients are told the addresses of the listener of this name. `holds` tells what this broker
        serves."""
        self._holds = holds
        own = membership.own
        super().__init__(own.id, own.addresses[listener], own.rack)
        self._membership = membership
        self._listener = listener
        self._seen = membership.view()
        self._placement = Placement(self._racks())

    def all(self) -> Sequence[Node]:
        return [self._node(each) for each in self._reachable()]

    def coordinator(self) -> Node | None:
        found = self._membership.coordinator()
        return None if found is None or self._listener not in found.addresses else self._node(found)

    def group_coordinator(self, group: GroupId) -> Node | None:
        return self._holder(scope_of_group(group))

    def transaction_coordinator(self, transactional_id: str) -> Node | None:
        return self._holder(scope_of_transactional_id(transactional_id))

    def _holder(self, scope: Scope) -> Node | None:
        if self._holds(scope):
            return self
        found = self._membership.holder_of(scope)
        # What was seen last may be a moment old: this broker knows better what it does not serve.
        if found is None or found.incarnation == self._membership.own.incarnation:
            return None
        return self._node(found) if self._listener in found.addresses else None

    def replicas(self, topic: Topic) -> Sequence[Replicas]:
        placement = self._current_placement()
        found = placement.of(topic.id, topic.partitions)
        if topic.scope is None:
            return found
        holder = self._holder(topic.scope)
        if holder is None:
            return ((),) * topic.partitions
        return [placement.led_by(holder.id, each) for each in found]

    def nearer(self, topic: Topic, partition: int, rack: str) -> int | None:
        # Without the database it is not known which brokers live: the one that is asked answers.
        if not rack or rack == self.rack or not self._membership.may_serve():
            return None
        placement = self._current_placement()
        replicas = placement.of(topic.id, topic.partitions)[partition]
        holder = None if topic.scope is None else self._holder(topic.scope)
        if holder is not None:
            replicas = placement.led_by(holder.id, replicas)
        found = placement.of_rack(rack, replicas)
        if found is None or not any(each.id == found and each.is_ready for each in self._reachable()):
            return None
        return found

    def _current_placement(self) -> Placement:
        view = self._membership.view()
        if view is not self._seen:  # there is one for each heartbeat; this is called for each topic
            self._seen = view
            if (racks := self._racks()) != self._placement.racks:
                self._placement = Placement(racks)
        return self._placement

    def _racks(self) -> dict[int, str | None]:
        return {each.id: each.rack for each in self._reachable()}

    def _reachable(self) -> list[ClusterBroker]:
        """The brokers with a listener of this name."""
        return [each for each in self._membership.brokers() if self._listener in each.addresses]

    def _node(self, broker: ClusterBroker) -> Node:
        return Node(broker.id, broker.addresses[self._listener], broker.rack)
