"""Network addresses."""

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 asks the system for a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is not an address; write HOST:PORT, for example 127.0.0.1:9092")
        return cls(host.strip("[]") or "127.0.0.1", int(port))

    @classmethod
    def of_peer(cls, found: object) -> "Address":
        """From the extra information `peername` of a transport. That is missing if the client has reset its
        connection before the transport was made."""
        return cls(found[0], found[1]) if isinstance(found, tuple) else UNKNOWN

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


UNKNOWN = Address("?", 0)
"""Of a client that has reset its connection before it was served."""
