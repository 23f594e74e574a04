"""Which addresses webhooks may connect to: a webhook must not become a way into the network of the broker
(server-side request forgery).

What counts is the address that is connected to, never the name: names are resolved once for each connection,
and all of their addresses are looked at.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from posthouse.webhooks.failures import NoAnswer

_ALSO_PRIVATE: Final = (ip_network("192.0.0.0/24"), ip_network("192.88.99.0/24"))
"""That `ipaddress` takes for public, in whole or in part: protocol assignments, relays of 6to4."""
_NAT64: Final = ip_network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class AllowedTargets:
    def __init__(self, networks: Iterable[str]) -> None:
        """`networks` are allowed although they are not public."""
        self._networks: Sequence[IPv4Network | IPv6Network] = [ip_network(each) for each in networks]

    def check(self, host: str, addresses: Iterable[str], *, has_tls: bool) -> None:
        """Raises NoAnswer if one of the addresses of the host must not be connected to."""
        for text in addresses:
            for address in _reached(ip_address(text)):
                if self._is_named(address):
                    continue
                if not _is_public(address):
                    raise NoAnswer(
                        f"{host} has the address {text}, which is not public; to allow it, add its network "
                        "to webhook_allow"
                    )
                if not has_tls:
                    raise NoAnswer(
                        f"{host} has the public address {text}: only https is allowed there, or its network "
                        "in webhook_allow"
                    )

    def _is_named(self, address: Address) -> bool:
        return any(address.version == each.version and address in each for each in self._networks)


def _reached(address: Address) -> list[Address]:
    """The address, or those that packets to it reach in the end: several notations of IPv6 carry IPv4."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    if address in _NAT64:
        return [IPv4Address(int(address) & 0xFFFF_FFFF)]
    return [address]


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    if address.is_private or address.is_loopback or address.is_link_local:
        return False
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    return not any(address.version == each.version and address in each for each in _ALSO_PRIVATE)
