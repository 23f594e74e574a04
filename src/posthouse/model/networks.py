"""The owner of an address, for limits per address."""

from ipaddress import ip_network

_PREFIX = 64
"""Bits of an IPv6 address that identify its owner; the owner may choose the others."""


def owner_of(host: str) -> str:
    """The address itself; for IPv6 its network, in which the owner may choose any address."""
    if ":" not in host:
        return host
    return str(ip_network((host.strip("[]").partition("%")[0], _PREFIX), strict=False))


def owner_of_peer(peer: str) -> str:
    """The owner of `HOST:PORT`; any other text, as of a socket without an address, is its own owner."""
    host = peer.rpartition(":")[0]
    try:
        return owner_of(host)
    except ValueError:
        return host
