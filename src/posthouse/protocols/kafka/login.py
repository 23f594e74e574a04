"""How a Kafka connection logs in: it names a mechanism, then tokens go back and forth."""

from collections.abc import Callable
from typing import Protocol

from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.scram import ScramServer
from posthouse.model.errors import LoginFailed
from posthouse.model.scram import Mechanism
from posthouse.protocols.plain import parse_plain

PLAIN = "PLAIN"
_MAX_TOKEN_BYTES = 16 * 1024


class Conversation(Protocol):
    """One mechanism at work."""

    user: str

    async def take(self, token: bytes) -> tuple[bytes, Principal | None]:
        """The answer, and who it is once that is known. Raises LoginFailed."""


class PlainConversation:
    def __init__(self, access: AccessControl, peer: str) -> None:
        self._access = access
        self._peer = peer
        self.user = ""

    async def take(self, token: bytes) -> tuple[bytes, Principal | None]:
        said = parse_plain(token)
        if said is None:
            raise LoginFailed("a PLAIN token that cannot be read")
        try:
            as_whom, password = said.as_whom.decode(), said.password.decode()
            self.user = said.user.decode()
        except UnicodeDecodeError:
            raise LoginFailed("a PLAIN token that is not UTF-8") from None
        if as_whom not in ("", self.user):
            raise LoginFailed("a login in the name of somebody else")
        return b"", await self._access.log_in(self.user, password, self._peer)


class ScramConversation:
    def __init__(self, exchange: ScramServer) -> None:
        self._exchange = exchange
        self._is_begun = False
        self.user = ""

    async def take(self, token: bytes) -> tuple[bytes, Principal | None]:
        if not self._is_begun:
            self._is_begun = True
            answer = self._exchange.first(token)
            self.user = self._exchange.user
            return answer, None
        return self._exchange.final(token), Principal(self.user)


class Login:
    """Of one connection. `succeeded` is told who it is, and may still raise LoginFailed."""

    def __init__(
        self,
        access: AccessControl,
        peer: str,
        succeeded: Callable[[Principal], None],
        *,
        allows_plain: bool,
    ) -> None:
        self._access = access
        self._peer = peer
        self._succeeded = succeeded
        self._allows_plain = allows_plain
        self._mechanism = ""
        self._conversation: Conversation | None = None
        self.is_raw = False
        """Tokens come as frames of their own: the way before SaslAuthenticate."""

    @property
    def is_begun(self) -> bool:
        return self._conversation is not None

    @property
    def mechanisms(self) -> list[str]:
        """What is offered. A plain password is not, where others could read it on its way."""
        return [*([PLAIN] if self._allows_plain else []), *Mechanism]

    def begin(self, mechanism: str, *, raw: bool) -> bool:
        """Whether the mechanism is there."""
        if mechanism not in self.mechanisms:
            return False
        self._mechanism = mechanism
        self.is_raw = raw
        if mechanism == PLAIN:
            self._conversation = PlainConversation(self._access, self._peer)
        else:
            self._conversation = ScramConversation(self._access.scram(Mechanism(mechanism)))
        return True

    async def take(self, token: bytes) -> bytes:
        """The answer to a token. Raises LoginFailed, and then the connection has to go."""
        conversation = self._conversation
        if conversation is None or len(token) > _MAX_TOKEN_BYTES:
            raise LoginFailed("a token that nobody asked for")
        try:
            answer, principal = await conversation.take(token)
            if principal is not None:
                self._succeeded(principal)
        except LoginFailed as error:
            self._conversation = None
            self._record(conversation.user, error)
            raise
        if principal is not None:
            self._conversation = None
            self.is_raw = False
            self._record(principal.name)
        return answer

    def _record(self, user: str, failure: LoginFailed | None = None) -> None:
        self._access.record_login(user, self._peer, "kafka", self._mechanism, failure)
