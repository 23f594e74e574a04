"""The broker's listener, on the simulated network instead of sockets."""

import asyncio
from typing import Any

from posthouse.protocols import listener
from posthouse.settings import Address
from tests.simulation.network import Server


class Listener(listener.Listener):
    """Everything but binding and accepting is the broker's own."""

    _server: Server | None = None

    async def start(
        self, address: Address, tls: Any = None, *, setting: str = "", tls_is_optional: bool = False
    ) -> Address:
        loop = self._loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: self._factory(self), address.host, address.port)
        assert isinstance(server, Server)
        self._server = server
        return address

    def _close_sockets(self) -> None:
        if self._server is not None:
            self._server.close()
