"""Login of a Kafka client: with a certificate, or with SASL in requests or, before SaslAuthenticate existed,
in raw frames."""

from posthouse.broker.access.principal import Principal
from posthouse.model.errors import LoginFailed
from posthouse.protocols.authenticator import Authenticator
from posthouse.protocols.sasl import SaslLogin


class Login:
    """The login of one connection."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._sasl = SaslLogin(authenticator)
        self.is_raw = False
        """Tokens are raw frames: the protocol before SaslAuthenticate."""

    def take_name(self, name: str, mechanism: str) -> None:
        """Log in by what is known of the connection, so that the client need not send anything: its
        certificate, or the name that another broker has proven. Raises LoginFailed."""
        try:
            self._authenticator.admit(Principal(name))
        except LoginFailed as error:
            self._authenticator.record(name, mechanism, error)
            raise
        self._authenticator.record(name, mechanism)

    @property
    def is_begun(self) -> bool:
        return self._sasl.is_begun

    @property
    def mechanisms(self) -> list[str]:
        return self._sasl.mechanisms

    def begin(self, mechanism: str, *, raw: bool) -> bool:
        """Select the mechanism; returns whether it is offered."""
        if not self._sasl.begin(mechanism):
            return False
        self.is_raw = raw
        return True

    async def take(self, token: bytes) -> bytes:
        """The answer to a token. Raises LoginFailed; then the connection must be closed."""
        answer = await self._sasl.take(token)
        if not self._sasl.is_begun:
            self.is_raw = False
        return answer
