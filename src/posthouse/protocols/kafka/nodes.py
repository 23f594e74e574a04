"""The nodes that Kafka clients are told of: one, or all live brokers that share the storage."""

from collections.abc import Sequence

from posthouse.protocols.membership import Membership
from posthouse.settings import Address

NODE_ID = 1
"""Of a broker that is alone."""


class Node:
    """The node that serves. It is leader of every partition, controller and coordinator."""

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


class MemberNode(Node):
    """The node that serves, in a cluster. The other nodes pass connections on to it."""

    __slots__ = ("_listener", "_membership")

    def __init__(self, membership: Membership, listener: str) -> None:
        """Clients are told the addresses of the listener of this name."""
        own = membership.own
        super().__init__(own.id, own.addresses[listener], own.rack)
        self._membership = membership
        self._listener = listener

    def all(self) -> Sequence[Node]:
        return [
            Node(each.id, each.addresses[self._listener], each.rack)
            for each in self._membership.brokers()
            if self._listener in each.addresses
        ]
