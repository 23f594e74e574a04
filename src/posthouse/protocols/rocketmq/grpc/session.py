"""What the broker knows of one connection."""

from typing import Final

from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.broker.protocol_members import Software
from posthouse.model.errors import LoginFailed
from posthouse.protocols.authenticator import Authenticator
from posthouse.protocols.grpc.call import Caller
from posthouse.protocols.grpc.metadata import Metadata
from posthouse.protocols.rocketmq.charges import Charges
from posthouse.protocols.rocketmq.codec.errors import BadHost
from posthouse.protocols.rocketmq.codec.hosts import Host, pack_host
from posthouse.protocols.rocketmq.grpc.logins import AUTHORIZATION, SignedCalls
from posthouse.protocols.rocketmq.grpc.server import MessagingServer
from posthouse.protocols.rocketmq.messages import UNKNOWN_HOST
from posthouse.settings import Address

PROTOCOL: Final = "rocketmq_grpc"
_LANGUAGE: Final = "x-mq-language"
_CLIENT_VERSION: Final = "x-mq-client-version"
_UNKNOWN: Final = "OTHER"
_LONGEST_TEXT: Final = 64


class MessagingSession:
    def __init__(self, server: MessagingServer, connection: Caller) -> None:
        self.server = server
        self.connection = connection
        self.guard: Guard = CLOSED
        self.charges = Charges(server.broker.access.quotas, connection.throttle)
        identity = connection.identity
        self.peer = identity.peer
        self.software = Software()
        """Of the client, once it has made a call."""
        self.host = _packed(identity.address)
        """The client's address, as it is in messages."""
        self.own_host = _packed(connection.address)
        self.store_host = str(connection.address)
        self._authenticator = Authenticator(
            server.broker.access,
            identity,
            PROTOCOL,
            admitted=self._admitted,
            revoked=connection.abort,
        )
        self._signed = SignedCalls(self._authenticator) if self._authenticator.is_required else None
        if self._signed is None:
            self._authenticator.admit_anonymous()
        self._is_described = False

    def _admitted(self, guard: Guard) -> None:
        self.guard = guard
        self.charges.user = guard.principal.name

    def check_login(self, metadata: Metadata) -> None:
        """Raises LoginFailed."""
        if self._signed is None:
            return
        try:
            self._signed.check(metadata)
        except LoginFailed:
            if AUTHORIZATION in metadata:  # otherwise its client does not know that it has to log in
                self.connection.throttle.extend(self.connection.offended())
            raise

    def introduce(self, metadata: Metadata) -> None:
        """Note what the clients of this connection are, as the first call says."""
        if not self.software.name:
            language = metadata.get(_LANGUAGE) or _UNKNOWN
            version = metadata.get(_CLIENT_VERSION) or ""
            self.software = Software(language[:_LONGEST_TEXT], version[:_LONGEST_TEXT])

    def proven(self, client: str) -> None:
        """The client speaks the protocol, and has logged in if it has to."""
        if not self._is_described:
            self._is_described = True
            self.charges.client = client
            self.connection.prove()
            self.connection.describe(client, self._authenticator.user)

    def tick(self) -> None:
        self.server.sweep()

    def close(self) -> None:
        self.server.clients.lost(self)
        self._authenticator.close()


def _packed(address: Address | None) -> bytes:
    if address is None:
        return UNKNOWN_HOST
    try:
        return pack_host(Host(address=address.host, port=address.port))
    except BadHost:
        return UNKNOWN_HOST
