"""A client whose virtual host another broker of the cluster serves: from connection.open until that broker
has the connection.

This broker has spoken with the client so far: TLS, login and tuning are its own. The other broker is sent the
client's methods again, without the password, and then all that the client sends. It answers connection.open.

Heartbeats are this broker's until the other one has the connection: it sends them, and closes the connection
of a client that is silent. From then on they are the other broker's.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pamqp.commands import Connection as Methods

from posthouse.model.address import Address
from posthouse.model.errors import Unavailable
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.behind_open import BehindOpen
from posthouse.protocols.amqp.errors import INTERNAL, Refused, ReplyCode
from posthouse.protocols.amqp.negotiation import Negotiation
from posthouse.protocols.introduction import GuardedTransport
from posthouse.protocols.listener import Connection, Listener
from posthouse.protocols.transfer import ReachedHolder, Transfer, TransferredClient

log = logging.getLogger(__name__)


def _forced(explanation: str) -> Refused:
    return Refused(ReplyCode.CONNECTION_FORCED, f"{explanation}; connect again")


def moved() -> Refused:
    """This broker does not serve the virtual host of the client any more, or never has."""
    return _forced("another broker serves the virtual host now")


_LOST: Final = _forced("the broker that serves the virtual host has not answered")
_FAREWELL: Final = encode.method(0, Methods.Close(_LOST.code, _LOST.text, 0, 0))


class Transferring:
    """Of one connection."""

    def __init__(self, transfer: Transfer, listener: str, client: Address) -> None:
        """`listener` is the name of the setting."""
        self._transfer = transfer
        self._listener = listener
        self._client = client
        self._behind_open = BehindOpen()
        self._introduction = b""
        self._task: asyncio.Task[None] | None = None

    def feed(self, data: bytes) -> None:
        """To be called with all that the client sends."""
        self._behind_open.feed(data)

    def begin(
        self,
        negotiation: Negotiation,
        user: ProvenUser | None,
        *,
        reached: Callable[[ReachedHolder], None],
        failed: Callable[[Refused], None],
    ) -> None:
        """The client has sent connection.open. One of the two is called later, unless this is cancelled.
        Raises Refused."""
        self._introduction = negotiation.introduction()
        reaching = self._reach(user, scope_of_namespace(negotiation.vhost), reached, failed)
        self._task = asyncio.get_running_loop().create_task(reaching)

    @property
    def is_full(self) -> bool:
        """Whether no more is to be read from the client until the other broker is reached."""
        return self._task is not None and len(self._behind_open.kept) > 0

    async def _reach(
        self,
        user: ProvenUser | None,
        scope: Scope,
        reached: Callable[[ReachedHolder], None],
        failed: Callable[[Refused], None],
    ) -> None:
        try:
            holder = await self._transfer.reach(self._listener, self._client, user, scope)
        except Unavailable as error:
            failed(_forced(f"the virtual host cannot be served now: {error}"))
        except Exception:
            log.exception("transferring the AMQP connection from %s failed", self._client)
            failed(Refused(ReplyCode.INTERNAL_ERROR, INTERNAL))
        else:
            reached(holder)

    def hand_over(
        self,
        holder: ReachedHolder,
        connection: Connection,
        listener: Listener,
        transport: asyncio.Transport,
        left: Callable[[], None],
    ) -> None:
        """Nothing that this broker has sent is unwritten. `left` is called when the client is gone."""
        client = TransferredClient(
            connection=connection,
            listener=listener,
            transport=transport.unguarded if isinstance(transport, GuardedTransport) else transport,
            address=self._client,
            received=self._introduction + self._behind_open.kept,
            farewell=_FAREWELL,
            left=left,
        )
        holder.serve(client)

    def cancel(self) -> None:
        """The client is gone, or was told to go."""
        if self._task is not None:
            self._task.cancel()
