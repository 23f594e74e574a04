"""RocketMQ's remoting protocol as a front end of the broker."""

from collections.abc import Callable
from functools import partial
from typing import Final

from posthouse.listener_settings import ROCKETMQ, Address, ListenerSettings
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.settings import Settings


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    # Imported here: most brokers do not serve the protocol, and start sooner.
    from posthouse.protocols.rocketmq.remoting.connection import RemotingConnection
    from posthouse.protocols.rocketmq.remoting.server import RemotingServer

    # One for all listeners: clients of a group may use several.
    server = RemotingServer(backend.broker, backend.settings, backend.budget, backend.requests)
    return lambda listener: partial(RemotingConnection, server, listener.advertised)


def _describe(address: Address, settings: Settings) -> str:
    return f"RocketMQ clients on {address} (name server and broker)"


ROCKETMQ_FRONT_END: Final = FrontEnd(protocol=ROCKETMQ, connect=_connect, describe=_describe)
