"""Connections of clients that have logged in at this broker, and that the holder of a scope serves."""

import socket
from uuid import UUID

from posthouse.cluster.dialling import Dialler, NoHolder
from posthouse.cluster.forwarding import DialledHolder, ForwardedConnection
from posthouse.cluster.preamble import TransferPassage
from posthouse.model.address import Address
from posthouse.model.errors import Unavailable
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.transfer import TransferredClient


class ScopeTransfer:
    """Implements the port in `protocols/transfer`."""

    def __init__(self, own: UUID, dialler: Dialler) -> None:
        """`own` is the incarnation of this broker."""
        self._own = own
        self._dialler = dialler

    async def reach(
        self, listener: str, client: Address, user: ProvenUser | None, scope: Scope
    ) -> "DialledTransfer":
        passage = TransferPassage(broker=self._own, listener=listener, client=client, user=user, scope=scope)
        try:
            dialled, holder = await self._dialler.dial(passage)
        except (NoHolder, OSError, ValueError) as error:
            raise Unavailable(str(error)) from None
        return DialledTransfer(listener, self._dialler, dialled, holder, scope)


class DialledTransfer:
    def __init__(
        self, name: str, dialler: Dialler, dialled: socket.socket, holder: UUID, scope: Scope
    ) -> None:
        self._name = name
        self._dialler = dialler
        self._dialled = dialled
        self._holder = holder
        self._scope = scope

    def serve(self, client: TransferredClient) -> None:
        dialled = DialledHolder(
            socket=self._dialled, incarnation=self._holder, scope=self._scope, client=client
        )
        successor = ForwardedConnection(self._name, self._dialler, client.listener, dialled)
        client.listener.replace(client.connection, successor)
        client.transport.set_protocol(successor)
        successor.connection_made(client.transport)

    def close(self) -> None:
        self._dialled.close()
