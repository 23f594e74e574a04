"""RocketMQ's gRPC protocol as a front end of the broker."""

from collections.abc import Callable
from functools import partial
from typing import Final

from posthouse.listener_settings import ROCKETMQ_GRPC, Address, ListenerSettings
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.settings import Settings


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    # Imported here: the messages take a tenth of a second, and most brokers do not serve them.
    from posthouse.protocols.grpc.connection import GrpcConnection
    from posthouse.protocols.grpc.server import GrpcLimits, GrpcServer
    from posthouse.protocols.rocketmq.grpc.dispatch import service_methods
    from posthouse.protocols.rocketmq.grpc.server import MessagingServer
    from posthouse.protocols.rocketmq.grpc.session import PROTOCOL, MessagingSession

    # One for all listeners: clients of a group may use several.
    settings = backend.settings
    messaging = MessagingServer(backend.broker, settings)
    server = GrpcServer(
        service_methods(),
        protocol=PROTOCOL,
        budget=backend.budget,
        requests=backend.requests,
        is_behind=backend.broker.is_behind,
        now_ms=backend.broker.now_ms,
        buffer_bytes=settings.connection_buffer_bytes,
        allow_cleartext=settings.allow_cleartext_passwords,
        limits=GrpcLimits(max_message_bytes=settings.max_request_bytes),
        open_session=partial(MessagingSession, messaging),
    )
    return lambda listener: partial(GrpcConnection, server, listener.advertised)


def _describe(address: Address, settings: Settings) -> str:
    return f"RocketMQ clients on {address} (gRPC)"


ROCKETMQ_GRPC_FRONT_END: Final = FrontEnd(protocol=ROCKETMQ_GRPC, connect=_connect, describe=_describe)
