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

from pamqp.commands import Connection

from posthouse.model.address import Address
from posthouse.model.errors import Unavailable
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.behind_open import BehindOpen
from posthouse.protocols.amqp.errors import INTERNAL, Refused, ReplyCode
from posthouse.protocols.amqp.negotiation import Negotiation
from posthouse.protocols.transfer import ReachedHolder, Transfer

log = logging.getLogger(__name__)


def _forced(explanation: str) -> Refused:
    return Refused(ReplyCode.CONNECTION_FORCED, f"{explanation}; connect again")


def moved() -> Refused:
    """Another broker has transferred the client, and this one does not serve the virtual host any more."""
    return _forced("another broker serves the virtual host now")


_LOST: Final = _forced("the broker that serves the virtual host has not answered")
FAREWELL: Final = encode.method(0, Connection.Close(_LOST.code, _LOST.text, 0, 0))


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
        scope: Scope,
        *,
        reached: Callable[[ReachedHolder], None],
        failed: Callable[[Refused], None],
    ) -> None:
        """The client has sent connection.open. One of the two is called later, unless this is cancelled."""
        self._introduction = negotiation.introduction()
        reaching = self._reach(user, scope, reached, failed)
        self._task = asyncio.get_running_loop().create_task(reaching)

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

    @property
    def received(self) -> bytes:
        """What the other broker is sent first."""
        return self._introduction + self._behind_open.kept

    def cancel(self) -> None:
        """The client is gone."""
        if self._task is not None:
            self._task.cancel()
