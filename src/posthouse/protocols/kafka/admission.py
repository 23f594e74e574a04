"""Who the client of a connection is, and so what it may do."""

import asyncio
import logging
from collections.abc import Callable

from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.broker.access.principal import Principal
from posthouse.model.errors import LoginFailed
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.noop import noop
from posthouse.protocols.tls import name_of

log = logging.getLogger(__name__)

_PROTOCOL = "kafka"


class Admission:
    def __init__(
        self,
        access: AccessControl,
        peer: str,
        *,
        admitted: Callable[[], None],
        dismissed: Callable[[], None],
    ) -> None:
        """`admitted` is called once it is known who it is, `dismissed` when it is not welcome any more."""
        self._access = access
        self._peer = peer
        self._admitted = admitted
        self._dismissed = dismissed
        self._session: tuple[str, int] | None = None
        self.guard: Guard = CLOSED
        self.login: Login | None = None
        """None where nobody has to log in."""

    def begin(self, transport: asyncio.BaseTransport, *, allows_plain: bool) -> None:
        """Raises LoginFailed for a client whose certificate says who it is, but who must not come in."""
        if not self._access.is_required:
            self.guard = self._access.guard(None, self._peer, _PROTOCOL)
            return
        self.login = Login(self._access, self._peer, self._succeeded, allows_plain=allows_plain)
        name = name_of(transport)
        if name is None:
            return
        failure = None
        try:
            self._succeeded(Principal(name))
        except LoginFailed as error:
            failure = error
            raise
        finally:
            self._access.record_login(name, self._peer, _PROTOCOL, "certificate", failure)

    def _succeeded(self, principal: Principal) -> None:
        """Raises LoginFailed where it is one connection too many, or suddenly somebody else."""
        if self._session is not None:
            if self._session[0] != principal.name:
                raise LoginFailed("this connection belongs to somebody else")
            return
        number = self._access.sessions.enter(principal.name, self._dismissed)
        self._session = (principal.name, number)
        self.guard = self._access.guard(principal, self._peer, _PROTOCOL)
        self._admitted()

    def end(self) -> None:
        """The connection is lost. It is referred to no more, so that it goes without the collector."""
        if self._session is not None:
            self._access.sessions.exit(*self._session)
        self._admitted = self._dismissed = noop
        self.login = None
