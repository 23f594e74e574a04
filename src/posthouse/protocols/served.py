"""The listeners that are served, and their connections, for those who look at all of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from posthouse.listener_settings import Address, ListenerSettings
from posthouse.protocols.listener import Connection, Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedListener:
    settings: ListenerSettings
    listener: Listener
    is_coordinated: bool = False
    """Whether only the coordinator serves its clients."""
    serves_namespaces: bool = False
    """Whether its clients are in a namespace."""

    @property
    def name(self) -> str:
        """Of the setting that holds its address."""
        return self.settings.name

    @property
    def protocol(self) -> str:
        return self.settings.protocol.name

    @property
    def has_tls(self) -> bool:
        return self.settings.has_tls

    @property
    def address(self) -> Address | None:
        """Where clients connect; None before it is open, and after it is closed."""
        return self.listener.address


class ServedListeners:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._listeners: list[ServedListener] = []

    def add(self, listener: ServedListener) -> None:
        self._listeners.append(listener)

    def __iter__(self) -> Iterator[ServedListener]:
        return iter(self._listeners)

    def connections(self) -> Iterator[tuple[ServedListener, Connection]]:
        for served in self._listeners:
            for connection in served.listener:
                yield served, connection

    def clients(self) -> Iterator[tuple[ServedListener, Connection]]:
        """Without connections that another broker serves, or has made."""
        for served in self._listeners:
            for connection in served.listener.clients():
                yield served, connection
