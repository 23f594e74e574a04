"""Login of a Kafka client with SASL, in requests or, before SaslAuthenticate existed, in raw frames."""

from posthouse.protocols.authenticator import Authenticator
from posthouse.protocols.sasl import SaslLogin


class Login:
    """The login of one connection."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._sasl = SaslLogin(authenticator)
        self.is_raw = False
        """Tokens are raw frames: the protocol before SaslAuthenticate."""

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
