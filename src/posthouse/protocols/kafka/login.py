"""Login of a Kafka client: with a certificate, or with SASL in requests or, before SaslAuthenticate existed,
in raw frames."""

from collections.abc import Callable

from posthouse.broker.access.principal import Principal
from posthouse.model.errors import LoginFailed
from posthouse.model.proven_user import CERTIFICATE, ProvenUser
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.sasl import SaslLogin


class Login:
    """The login of one connection."""

    def __init__(self, authenticator: Authenticator, logged_in: Callable[[ProvenUser], None]) -> None:
        """`logged_in` is called with the user as the coordinator of the cluster is to be told, unless another
        broker has told of the user."""
        self._authenticator = authenticator
        self._logged_in = logged_in
        self._sasl = SaslLogin(authenticator)
        self.is_raw = False
        """Tokens are raw frames: the protocol before SaslAuthenticate."""

    def take_identity(self, identity: PeerIdentity, *, is_relayed: bool, has_tls: bool) -> None:
        """Log in by what is known of the connection, so that the client need not send anything: by the broker
        that relays the requests of its user, or by a certificate. Raises LoginFailed."""
        if is_relayed:
            broker = "this host" if identity.forwarder is None else identity.forwarder.host
            self._take_proven(identity.relayed_user, broker, has_tls=has_tls)
        elif identity.certified is not None:
            self._take_certificate(identity.certified)

    def _take_certificate(self, name: str) -> None:
        self._take(name, CERTIFICATE, lambda: self._authenticator.admit(Principal(name)))
        self._logged_in(self._authenticator.prove(CERTIFICATE))

    def _take_proven(self, user: ProvenUser | None, broker: str, *, has_tls: bool) -> None:
        """The audit log names the broker, too."""
        if user is None:
            raise LoginFailed(f"the broker at {broker} relays requests of a client without a login")
        try:
            self._take(
                user.name,
                f"{user.mechanism} relayed by {broker}",
                lambda: self._authenticator.admit_proven(user, has_tls=has_tls),
            )
        except LoginFailed as error:
            raise LoginFailed(f"the broker at {broker} relays requests of {user.name!r}: {error}") from error

    def _take(self, name: str, mechanism: str, admit: Callable[[], None]) -> None:
        try:
            admit()
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
            self._logged_in(self._authenticator.prove(self._sasl.mechanism))
        return answer
