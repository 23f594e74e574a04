"""Opens the session of a client: authentication, then the choice of a virtual host."""

from collections.abc import Callable

from pamqp.base import Frame as Command
from pamqp.commands import Connection as Methods

from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.model.proven_user import ProvenUser
from posthouse.protocols.amqp.acknowledgements import CollectedAcks, Unfinished
from posthouse.protocols.amqp.authenticator import GUEST, AmqpAuthenticator
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.errors import Refused, speaking_of
from posthouse.protocols.amqp.negotiation import Credentials, Negotiation, State
from posthouse.protocols.amqp.permissions import check_vhost
from posthouse.protocols.amqp.session import Session
from posthouse.protocols.amqp.shared import Shared
from posthouse.protocols.amqp.throttle import Throttle
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.flow_control import Outbox


class Opening:
    def __init__(self, shared: Shared, identity: PeerIdentity, revoked: Callable[[Refused], None]) -> None:
        """`revoked` is called with the reason when a client that has logged in must be disconnected."""
        self._shared = shared
        self._peer = identity.peer
        self._authenticator = AmqpAuthenticator(
            shared.access, identity, revoked, failure_seconds=shared.limits.failed_login_seconds
        )
        self._guard: Guard = CLOSED
        self.is_introduced = identity.is_introduced
        """Another broker has spoken with the client up to connection.open, and has transferred it."""
        self.negotiation = Negotiation(
            shared.limits, self._authenticator.mechanisms, is_introduced=identity.is_introduced
        )

    @property
    def is_logging_in(self) -> bool:
        return self.negotiation.state is State.SECURING

    async def log_in(self, login: Credentials) -> Command:
        """The answer to a login that succeeded. Raises LoginRefused."""
        guard = self._guard = await self._authenticator.admit(login)
        return self.negotiation.logged_in(guard.principal.name if self._authenticator.is_required else GUEST)

    @property
    def proven(self) -> ProvenUser | None:
        """The user who has logged in here, as another broker is told; None if login is not required."""
        return self._authenticator.proven

    async def update_secret(self, method: Methods.UpdateSecret) -> bytes:
        """The answer to a client that renews its password or token."""
        given: str | bytes | None = method.new_secret
        secret = given.decode(errors="replace") if isinstance(given, bytes) else given or ""
        await self._authenticator.check_secret(self.negotiation.user, secret)
        return encode.method(0, Methods.UpdateSecretOk())

    def session(
        self, outbox: Outbox, unfinished: Unfinished, acks: CollectedAcks, throttle: Throttle
    ) -> Session:
        negotiation, shared = self.negotiation, self._shared
        with speaking_of(negotiation.vhost):
            namespace = shared.namespaces.get(negotiation.vhost)
        check_vhost(self._guard, negotiation.user, negotiation.vhost)
        throttle.is_for(self._guard.principal.name, negotiation.connection_name)
        return Session(
            user=negotiation.user,
            peer=self._peer,
            guard=self._guard,
            is_guarded=self._authenticator.is_required,
            namespace=namespace,
            half_messages=shared.half_messages,
            capabilities=negotiation.capabilities,
            frame_max=negotiation.frame_max,
            limits=shared.limits,
            outbox=outbox,
            unfinished=unfinished,
            acks=acks,
            throttle=throttle,
            envelopes=shared.envelopes,
            shown=shared.shown(namespace),
            stream_offsets=shared.stream_offsets,
            delivered=shared.methods.deliver,
            reply_tos=shared.reply_tos,
            names=shared.names,
        )

    def transfer(self) -> None:
        """Another broker serves the client from now on."""
        self._authenticator.transfer()

    def leave(self) -> None:
        """The connection is gone."""
        self._authenticator.close()
