"""What counts as one address where addresses are counted."""

from ipaddress import ip_network

_PREFIX = 64
"""Bits of an IPv6 address that say whose it is; all others its owner may choose."""


def owner_of(host: str) -> str:
    """The address itself, of IPv6 its network, in which its owner may choose any."""
    if ":" not in host:
        return host
    return str(ip_network((host.strip("[]").partition("%")[0], _PREFIX), strict=False))


def owner_of_peer(peer: str) -> str:
    """Of `HOST:PORT`; something else, as of a socket that has no address, is its own owner."""
    host = peer.rpartition(":")[0]
    try:
        return owner_of(host)
    except ValueError:
        return host
