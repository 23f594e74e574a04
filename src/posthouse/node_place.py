"""Where a node is reached: its listening sockets, which it keeps under every lease, and their addresses."""

import socket
from collections.abc import Mapping

from posthouse.protocols.listening import ListeningSockets
from posthouse.settings import Address, Settings

PEER = "peer"
"""The name of the listener for other brokers, in the registry."""


class NodePlace:
    def __init__(
        self, settings: Settings, clients: Mapping[str, ListeningSockets], peer: ListeningSockets
    ) -> None:
        self._settings = settings
        self._clients = clients
        self.peer = peer

    @classmethod
    async def bind(cls, settings: Settings) -> "NodePlace":
        """Raises InvalidConfig."""
        bound: dict[str, ListeningSockets] = {}
        try:
            for each in settings.listeners:
                bound[each.name] = await ListeningSockets.bind(each.address, each.name)
            return cls(settings, bound, await ListeningSockets.bind(settings.peer, "peer"))
        except BaseException:
            for sockets in bound.values():
                sockets.close()
            raise

    @property
    def listeners(self) -> dict[str, Address]:
        """The addresses of the client listeners, by the name of the setting."""
        return {name: each.address for name, each in self._clients.items()}

    @property
    def advertised(self) -> dict[str, Address]:
        """Where clients and other brokers are told to connect."""
        bound = self.listeners
        found = {each.name: each.advertised or bound[each.name] for each in self._settings.listeners}
        return found | {PEER: self._settings.peer_advertised or self.peer.address}

    @property
    def name(self) -> str:
        """The name of the broker among others."""
        if self._settings.broker_name:
            return self._settings.broker_name
        bound = self.listeners
        first = bound.get("kafka") or bound.get("kafka_tls") or next(iter(bound.values()))
        return f"{socket.gethostname()}:{first.port}"

    def copies(self) -> dict[str, ListeningSockets]:
        """The sockets of the client listeners, for one app: it closes them at its end."""
        return {name: each.duplicate() for name, each in self._clients.items()}

    def close(self) -> None:
        for each in (*self._clients.values(), self.peer):
            each.close()
