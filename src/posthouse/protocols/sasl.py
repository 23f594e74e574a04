"""SASL (RFC 4422), the server's side: the client names a mechanism, then tokens go back and forth."""

from typing import Protocol

from posthouse.broker.access.principal import Principal
from posthouse.broker.access.scram import ScramServer
from posthouse.model.errors import LoginFailed
from posthouse.model.proven_user import PLAIN
from posthouse.model.scram import Mechanism
from posthouse.protocols.authenticator import Authenticator
from posthouse.protocols.plain import parse_plain

_MAX_TOKEN_BYTES = 16 * 1024


class SaslExchange(Protocol):
    """One exchange with a mechanism."""

    user: str

    async def take(self, token: bytes) -> tuple[bytes, Principal | None]:
        """The answer, and the principal once it is authenticated. Raises LoginFailed."""


class PlainTokens:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
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
            raise LoginFailed("a login in the name of another user")
        return b"", await self._authenticator.verify_password(self.user, password)


class ScramTokens:
    def __init__(self, authenticator: Authenticator, exchange: ScramServer) -> None:
        self._authenticator = authenticator
        self._exchange = exchange
        self._is_begun = False
        self.user = ""

    async def take(self, token: bytes) -> tuple[bytes, Principal | None]:
        if not self._is_begun:
            self._is_begun = True
            # The first answer shows the client its salt: a password changed at another broker must be known.
            await self._authenticator.refresh_users()
            answer = self._exchange.first(token)
            self.user = self._exchange.user
            return answer, None
        return self._exchange.final(token), Principal(self.user)


class SaslLogin:
    """The SASL login of one connection."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self.mechanism = ""
        """The one that was selected last."""
        self._exchange: SaslExchange | None = None

    @property
    def is_begun(self) -> bool:
        return self._exchange is not None

    @property
    def mechanisms(self) -> list[str]:
        """The offered mechanisms: PLAIN only on private connections."""
        return [*([PLAIN] if self._authenticator.identity.may_send_password else []), *Mechanism]

    def begin(self, mechanism: str) -> bool:
        """Select the mechanism; returns whether it is offered."""
        if mechanism not in self.mechanisms:
            return False
        self.mechanism = mechanism
        if mechanism == PLAIN:
            self._exchange = PlainTokens(self._authenticator)
        else:
            exchange = self._authenticator.scram(Mechanism(mechanism))
            self._exchange = ScramTokens(self._authenticator, exchange)
        return True

    async def take(self, token: bytes) -> bytes:
        """The answer to a token. Raises LoginFailed; then the connection must be closed."""
        exchange = self._exchange
        if exchange is None or len(token) > _MAX_TOKEN_BYTES:
            raise LoginFailed("a token before a mechanism was chosen")
        try:
            answer, principal = await exchange.take(token)
            if principal is not None:
                self._authenticator.admit(principal)
        except LoginFailed as error:
            self._exchange = None
            self._authenticator.record(exchange.user, self.mechanism, error)
            raise
        if principal is not None:
            self._exchange = None
            self._authenticator.record(principal.name, self.mechanism)
        return answer
