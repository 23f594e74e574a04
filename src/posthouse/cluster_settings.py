"""Checks of the settings of a broker that shares its storage with others."""

from collections.abc import Sequence

from posthouse.listener_settings import KAFKA, ListenerSettings
from posthouse.model.address import Address
from posthouse.model.errors import InvalidConfig

_ANYWHERE = frozenset({"0.0.0.0", "::"})


def check_shared_storage(*, has_database: bool, has_objects: bool, in_memory: bool) -> None:
    """Raises InvalidConfig."""
    if has_database != has_objects:
        missing, given = ("objects", "database") if has_database else ("database", "objects")
        raise InvalidConfig(f"{given} is set without {missing}: shared storage needs both")
    if has_database and in_memory:
        raise InvalidConfig("memory and database are both set; choose where records are kept")


def check_node_id(node_id: int, *, has_database: bool) -> None:
    """Raises InvalidConfig."""
    if not has_database:
        raise InvalidConfig("node_id is for brokers that share a storage; it needs database and objects")
    if not 1 <= node_id < 2**31:
        raise InvalidConfig(f"node_id must be from 1 to {2**31 - 1}, not {node_id}")


def check_reachable(
    listeners: Sequence[ListenerSettings], peer: Address, peer_advertised: Address | None
) -> None:
    """Raises InvalidConfig unless clients and other brokers can be told where to connect."""
    for each in listeners:
        if each.protocol == KAFKA and each.advertised is None and each.address.host in _ANYWHERE:
            raise InvalidConfig(
                f"{each.name} listens on {each.address}, which is no address to connect to; set "
                f"{each.name}_advertised, because other brokers name this one to their clients"
            )
        if each.address == peer and peer.port:
            raise InvalidConfig(f"peer and {each.name} are both to listen on {peer}")
    if peer_advertised is None and peer.host in _ANYWHERE:
        raise InvalidConfig(
            f"peer listens on {peer}, which is no address to connect to; set peer_advertised, where other "
            "brokers reach this one"
        )
