"""Addresses in messages and message ids: 4 or 16 bytes of IP, then the port in 4."""

import socket
from dataclasses import dataclass
from typing import Final

from posthouse.protocols.rocketmq.codec.errors import BadHost

V4_SIZE: Final = 8
V6_SIZE: Final = 20
_LARGEST_PORT: Final = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    address: str
    """IPv4 or IPv6."""
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def pack_host(host: Host) -> bytes:
    """Raises BadHost. A name is none: it has to be resolved before."""
    if not 0 <= host.port <= _LARGEST_PORT:
        raise BadHost(f"there is no port {host.port}")
    try:
        packed = socket.inet_pton(
            socket.AF_INET6 if ":" in host.address else socket.AF_INET, host.address.partition("%")[0]
        )
    except (OSError, ValueError):
        raise BadHost(f"{host.address!r} is no IP address") from None
    return packed + host.port.to_bytes(4)


def unpack_host(packed: bytes) -> Host:
    """Raises BadHost."""
    if len(packed) not in (V4_SIZE, V6_SIZE):
        raise BadHost(f"a host of {len(packed)} bytes: {V4_SIZE} and {V6_SIZE} exist")
    port = int.from_bytes(packed[-4:])
    if port > _LARGEST_PORT:
        raise BadHost(f"there is no port {port}")
    family = socket.AF_INET if len(packed) == V4_SIZE else socket.AF_INET6
    return Host(address=socket.inet_ntop(family, packed[:-4]), port=port)
