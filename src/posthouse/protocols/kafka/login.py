"""How a Kafka client logs in: with SASL, in requests or, as before SaslAuthenticate, in bare frames."""

from posthouse.protocols.authenticator import Authenticator
from posthouse.protocols.sasl import SaslLogin


class Login:
    """Of one connection."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._sasl = SaslLogin(authenticator)
        self.is_raw = False
        """Tokens come as frames of their own: the way before SaslAuthenticate."""

    @property
    def is_begun(self) -> bool:
        return self._sasl.is_begun

    @property
    def mechanisms(self) -> list[str]:
        return self._sasl.mechanisms

    def begin(self, mechanism: str, *, raw: bool) -> bool:
        """Whether the mechanism is offered."""
        if not self._sasl.begin(mechanism):
            return False
        self.is_raw = raw
        return True

    async def take(self, token: bytes) -> bytes:
        """The answer to a token. Raises LoginFailed, and then the connection must be closed."""
        answer = await self._sasl.take(token)
        if not self._sasl.is_begun:
            self.is_raw = False
        return answer
