"""HTTP as a front end of the broker: health, metrics, the JSON API, RabbitMQ's management API."""

from collections.abc import Callable
from typing import Final

from posthouse.listener_settings import ADMIN, Address, ListenerSettings
from posthouse.protocols.admin.connection import AdminConnections
from posthouse.protocols.admin.lazy_dispatch import LazyDispatcher
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.settings import Settings


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    dispatcher = LazyDispatcher(backend)
    return lambda listener: AdminConnections(backend, dispatcher, listener)


def _describe(address: Address, settings: Settings) -> str:
    return f"operators and metrics on http://{address}"


ADMIN_FRONT_END: Final = FrontEnd(
    protocol=ADMIN, connect=_connect, describe=_describe, reads_cut_off=True, is_coordinated=True
)
