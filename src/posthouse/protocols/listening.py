"""Bound sockets that listen. Several listeners may use them, one after the other."""

import asyncio
import errno
import socket
from collections.abc import Sequence

from posthouse.model.errors import InvalidConfig
from posthouse.settings import Address

BACKLOG = 1024

_BIND_ERRORS = {
    errno.EADDRINUSE: "port {port} of {host} is in use; stop the program that has it or choose another port"
    "{how}",
    errno.EACCES: "port {port} of {host} needs more rights; choose one above 1023{how}",
    errno.EADDRNOTAVAIL: "this machine has no address {host}; choose one that it has, such as 127.0.0.1",
}


class ListeningSockets:
    """The sockets of one address: a name may stand for several."""

    def __init__(self, address: Address, sockets: Sequence[socket.socket]) -> None:
        """`address` has the actual port."""
        self.address = address
        self.sockets = list(sockets)

    @classmethod
    async def bind(cls, address: Address, setting: str = "") -> "ListeningSockets":
        """Raises InvalidConfig. Port 0 lets the system choose a free one. `setting` has the address."""
        bound: list[socket.socket] = []
        try:
            await _bind(address, bound)
        except OSError as error:
            for each in bound:
                each.close()
            raise InvalidConfig(_bind_error(address, setting, error)) from None
        return cls(Address(address.host, bound[0].getsockname()[1]), bound)

    def duplicate(self) -> "ListeningSockets":
        """The same sockets under descriptors of their own: a listener closes those that it was given."""
        copies = [each.dup() for each in self.sockets]
        for each in copies:
            each.setblocking(False)
        return ListeningSockets(self.address, copies)

    def close(self) -> None:
        for each in self.sockets:
            each.close()
        self.sockets.clear()


async def _bind(address: Address, bound: list[socket.socket]) -> None:
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    port = address.port
    for family, kind, protocol, _, where in dict.fromkeys(found):
        listening = socket.socket(family, kind, protocol)
        bound.append(listening)
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((where[0], port, *where[2:]))
        listening.listen(BACKLOG)
        port = listening.getsockname()[1]


def _bind_error(address: Address, setting: str, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"there is no host {address.host!r} to listen on"
    sentence = _BIND_ERRORS.get(error.errno or 0, "cannot listen on {host}:{port}: {error}")
    how = f" with --{setting.replace('_', '-')}" if setting else ""
    return sentence.format(host=address.host, port=address.port, how=how, error=error.strerror or error)
